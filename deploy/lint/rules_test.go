package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A change is a mistake that somebody could make, and what must be said of it.
type change struct{ from, to, found string }

func (c change) apply(t *testing.T, text string) string {
	t.Helper()
	if !strings.Contains(text, c.from) {
		t.Fatalf("there is no %q to change", c.from)
	}
	return strings.Replace(text, c.from, c.to, 1)
}

// judge fails the test unless what is said of a changed file has the words.
func (c change) judge(t *testing.T, found []string, err error) {
	t.Helper()
	if err != nil {
		found = append(found, err.Error())
	}
	if !strings.Contains(strings.Join(found, "\n"), c.found) {
		t.Errorf("%q in place of %q: found %q, want %q", c.to, c.from, found, c.found)
	}
}

func TestRulesOfKubernetes(t *testing.T) {
	text := read(t, folder+"/kubernetes.yaml")
	user := dockerfile(t).User
	for _, c := range []change{
		{"revisionHistoryLimit: 5", "revisionHistoryLimits: 5", `unknown field "spec.revisionHistoryLimits"`},
		{"revisionHistoryLimit: 5", "RevisionHistoryLimit: 5", `unknown field "spec.RevisionHistoryLimit"`},
		{"revisionHistoryLimit: 5", "replicas: 5", `already set in map`},
		{"revisionHistoryLimit: 5", `revisionHistoryLimit: "5"`, `cannot unmarshal string`},
		{"kind: Service", "kind: Servce", "no rule for a Servce"},
		{"replicas: 3", "replicas: 1", "fewer than three"},
		{"maxUnavailable: 0", "maxUnavailable: 1", "takes an old replica away"},
		{"\n  maxUnavailable: 1", "\n  maxUnavailable: 3", "allows all replicas to go"},
		{"image: registry.example/flue:v1.0.0", "image: registry.example/flue:latest", "not pinned"},
		{"image: registry.example/flue:v1.0.0", "image: registry.example/flue:v0.9.0", "migrates with"},
		{"runAsNonRoot: true", "runAsNonRoot: false", "may run as root"},
		{"runAsUser: 65532", "runAsUser: 1000", "user of the image"},
		{"type: RuntimeDefault", "type: Unconfined", "seccomp"},
		{"automountServiceAccountToken: false", "automountServiceAccountToken: true", "token"},
		{"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "may gain privileges"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "may write to its image"},
		{"drop: [ALL]", "drop: [KILL]", "keeps capabilities"},
		{"value: 110MiB", "value: 128MiB", "GOMEMLIMIT 128MiB does not go with"},
		{"value: 450MiB", "value: 450M", `GOMEMLIMIT is "450M"`},
		{"              memory: 512Mi", "              cpu: 1", "no limit of memory"},
		{"cpu: 250m", "example.com/gpu: 1", "requests no cpu"},
		{"key: database-url", "key: database", "nothing says how to make the key database"},
		{"--from-literal=anthropic-api-key=", "--from-literal=openai-api-key=", "nothing says how to make the key anthropic-api-key"},
		{"path: /health, port: http}\n            periodSeconds: 2", "path: /healthz, port: http}\n            periodSeconds: 2", "readiness probe asks for /healthz"},
		{"path: /health/live", "path: /health", "liveness probe asks for /health"},
		{"path: /health/live, port: http", "path: /health/live, port: web", "at a port that there is not"},
		{"startupProbe:", "x-probe:", "unknown field"},
		{"containerPort: 3000", "containerPort: 3001", "does not listen where"},
		{`"0.0.0.0:3000"`, `"127.0.0.1:3000"`, "does not listen where"},
		{"--drain, 25s", "--drain, 55s", "is killed before"},
		{"terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 30", "is killed before"},
		{"seconds: 5", "seconds: 30", "is killed before"},
		{"--drain, 25s", "--drain, 25s, --drain-delay, 25s", "is killed before"},
		{"--drain, 25s, ", "", "no --drain"},
		{"  selector:\n    app.kubernetes.io/name: flue\n    app.kubernetes.io/component: server", "  selector:\n    app.kubernetes.io/name: flu", "Service: does not select"},
		{"  selector:\n    app.kubernetes.io/name: flue\n    app.kubernetes.io/component: server", "  selector:\n    app.kubernetes.io/name: flue", "selects the migration too"},
		{"targetPort: http", "targetPort: 3000", "by name"},
		{"restartPolicy: Never", "restartPolicy: OnFailure", "restartPolicy Never"},
	} {
		m, err := Kubernetes([]byte(c.apply(t, text)))
		var found []string
		if err == nil {
			found = m.Check(user)
		}
		c.judge(t, found, err)
	}
}

func TestRulesOfCompose(t *testing.T) {
	text := read(t, folder+"/compose.yaml")
	for _, c := range []change{
		{"stop_grace_period: 1m", "stop_grace: 1m", "services.postgres.stop_grace"},
		{"interval: 2s", "interval: soon", "interval"},
		{"source: nginx", "source: ngin", "undefined config"},
		{"condition: service_healthy", "condition: service_started", "does not wait for the database"},
		{"condition: service_completed_successfully", "condition: service_started", "does not wait for the migration"},
		{"image: flue:v1.0.0", "image: flue", "not pinned"},
		{"image: postgres:17.6-bookworm", "image: postgres:latest", "not pinned"},
		{"read_only: true", "read_only: false", "may write to its image"},
		{"cap_drop: [ALL]", "cap_drop: [KILL]", "keeps capabilities"},
		{"no-new-privileges:true", "no-new-privileges:false", "may gain privileges"},
		{"postgres://flue@", "postgres://flue:secret@", "there is a password"},
		{"postgres://flue@", "mysql://flue@", "no URL of PostgreSQL"},
		{"replicas: 3", "replicas: 1", "fewer than three"},
		{"memory: 512m", "memory: 400m", "GOMEMLIMIT 450MiB does not go with"},
		{"--drain, 25s", "--drain, 55s", "is killed before"},
		{"stop_grace_period: 40s", "stop_grace_period: 30s", "is killed before"},
		{`"127.0.0.1:8080:8080"`, `"8080:8080"`, "open to everybody"},
		{`"0.0.0.0:3000"`, `"127.0.0.1:3000"`, "cannot reach it"},
		{"command: [migrate]", "command: [inspect]", "nothing runs the command migrate"},
		{"    volumes:\n      - conversations:/var/lib/postgresql/data\n", "", "keeps nothing"},
		{"${POSTGRES_PASSWORD:?set it in deploy/.env}", "${PASSWORD:?set it in deploy/.env}", "set it in deploy/.env"},
	} {
		file := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(file, []byte(c.apply(t, text)), 0o600); err != nil {
			t.Fatal(err)
		}
		composed, err := Compose(t.Context(), file, "POSTGRES_PASSWORD=secret")
		var found []string
		if err == nil {
			found = composed.Check()
		}
		c.judge(t, found, err)
	}
}

// Nobody gets a database without a password of his own.
func TestComposeNeedsAPassword(t *testing.T) {
	if _, err := Compose(t.Context(), folder+"/compose.yaml"); err == nil || !strings.Contains(err.Error(), "set it in deploy/.env") {
		t.Errorf("without a password: %v", err)
	}
}

func TestRulesOfDockerfile(t *testing.T) {
	text := read(t, folder+"/Dockerfile")
	for _, c := range []change{
		{"golang:1.26.8-bookworm AS build", "golang:1.26.8-bookworm as build", "FromAsCasing"},
		{"golang:1.26.8-bookworm", "golang:1.20-bookworm", "built with golang:1.20-bookworm"},
		{"static-debian12:nonroot", "static-debian12", "not pinned"},
		{"USER 65532:65532", "USER 0", "may run as root"},
		{"CGO_ENABLED=0 ", "", "not linked statically"},
		{`ENTRYPOINT ["/usr/local/bin/flue"]`, `ENTRYPOINT /usr/local/bin/flue`, "not what the container runs"},
		{"EXPOSE 3000", "RUN true", "no shell"},
		{"WORKDIR /src", "WORKDR /src", "unknown instruction"},
	} {
		image, err := Dockerfile([]byte(c.apply(t, text)))
		var found []string
		if err == nil {
			found = image.Check("1.26.8")
		}
		c.judge(t, found, err)
	}
}
