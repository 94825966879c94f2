package lint

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Manifests are the objects of a file of Kubernetes.
type Manifests struct {
	Job        *batchv1.Job
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	Budget     *policyv1.PodDisruptionBudget

	secret map[string][]string // the keys of each Secret that the file says how to make
}

// Kubernetes decodes a file as the API server would that refuses unknown and
// repeated fields.
func Kubernetes(text []byte) (*Manifests, error) {
	m := &Manifests{secret: secrets(string(text))}
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = m.decode(doc)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Job == nil || m.Deployment == nil || m.Service == nil || m.Budget == nil {
		return nil, errors.New("it needs a Job, a Deployment, a Service and a PodDisruptionBudget")
	}
	return m, nil
}

func (m *Manifests) decode(doc []byte) error {
	raw, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	var kind metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "batch/v1 Job":
		return strict(raw, kind, &m.Job)
	case "apps/v1 Deployment":
		return strict(raw, kind, &m.Deployment)
	case "v1 Service":
		return strict(raw, kind, &m.Service)
	case "policy/v1 PodDisruptionBudget":
		return strict(raw, kind, &m.Budget)
	}
	return fmt.Errorf("there is no rule for a %s of %s", kind.Kind, kind.APIVersion)
}

func strict[T any](raw []byte, kind metav1.TypeMeta, into **T) error {
	if *into != nil {
		return fmt.Errorf("there are two objects of the kind %s", kind.Kind)
	}
	*into = new(T)
	unknown, err := json.UnmarshalStrict(raw, *into)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return nil
}

// secrets reads the commands in a file's comments that make Secrets.
func secrets(text string) map[string][]string {
	out := make(map[string][]string)
	joined := strings.ReplaceAll(text, "\\\n#", " ")
	for _, command := range regexp.MustCompile(`kubectl create secret generic (\S+)(.*)`).FindAllStringSubmatch(joined, -1) {
		for _, key := range regexp.MustCompile(`--from-literal=([\w.-]+)=`).FindAllStringSubmatch(command[2], -1) {
			out[command[1]] = append(out[command[1]], key[1])
		}
	}
	return out
}

// Commands returns what the containers run.
func (m *Manifests) Commands() [][]string {
	var out [][]string
	for _, c := range slices.Concat(m.Job.Spec.Template.Spec.Containers, m.Deployment.Spec.Template.Spec.Containers) {
		out = append(out, c.Args)
	}
	return out
}

// Check holds the manifests to our rules. user is the one that the image names.
func (m *Manifests) Check(user int64) []string {
	var f findings
	m.checkPod(&f, "Job", m.Job.Spec.Template.Spec, user)
	m.checkPod(&f, "Deployment", m.Deployment.Spec.Template.Spec, user)
	m.checkRollout(&f)
	m.checkServer(&f)
	m.checkReach(&f)
	if m.Job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever || m.Job.Spec.BackoffLimit == nil {
		f.add("Job: wants restartPolicy Never and a backoffLimit")
	}
	if job, servers := image(m.Job.Spec.Template), image(m.Deployment.Spec.Template); job != servers {
		f.add("Job: migrates with %s what %s uses", job, servers)
	}
	return f
}

func image(t corev1.PodTemplateSpec) string {
	if len(t.Spec.Containers) != 1 {
		return ""
	}
	return t.Spec.Containers[0].Image
}

func (m *Manifests) checkPod(f *findings, of string, pod corev1.PodSpec, user int64) {
	if len(pod.Containers) != 1 {
		f.add("%s: has %d containers", of, len(pod.Containers))
		return
	}
	if token := pod.AutomountServiceAccountToken; token == nil || *token {
		f.add("%s: mounts a token that it does not need", of)
	}
	s := pod.SecurityContext
	switch {
	case s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot:
		f.add("%s: may run as root", of)
	case s.RunAsUser == nil || *s.RunAsUser != user:
		f.add("%s: does not run as the user of the image, %d", of, user)
	case s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		f.add("%s: has no seccomp profile", of)
	}
	c := pod.Containers[0]
	if !pinned(c.Image) {
		f.add("%s: image %s is not pinned", of, c.Image)
	}
	m.checkContainer(f, of, c.SecurityContext)
	m.checkResources(f, of, c)
	m.checkEnv(f, of, c)
}

func (m *Manifests) checkContainer(f *findings, of string, s *corev1.SecurityContext) {
	switch {
	case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
		f.add("%s: may gain privileges", of)
	case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
		f.add("%s: may write to its image", of)
	case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
		f.add("%s: keeps capabilities", of)
	}
}

func (m *Manifests) checkResources(f *findings, of string, c corev1.Container) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := c.Resources.Requests[name]; !ok {
			f.add("%s: requests no %s", of, name)
		}
	}
	var soft string
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			soft = e.Value
		}
	}
	f.checkMemory(of, soft, c.Resources.Limits.Memory().Value())
}

func (m *Manifests) checkEnv(f *findings, of string, c corev1.Container) {
	database := false
	for _, e := range c.Env {
		if e.Name == "FLUE_DB" {
			database = e.ValueFrom != nil
		}
		if e.ValueFrom == nil {
			continue
		}
		ref := e.ValueFrom.SecretKeyRef
		if ref == nil || e.Value != "" {
			f.add("%s: %s is not from a Secret alone", of, e.Name)
		} else if !slices.Contains(m.secret[ref.Name], ref.Key) {
			f.add("%s: nothing says how to make the key %s of the Secret %s", of, ref.Key, ref.Name)
		}
	}
	if !database {
		f.add("%s: FLUE_DB is not from a Secret", of)
	}
}

func (m *Manifests) checkRollout(f *findings) {
	d := m.Deployment.Spec
	if d.Replicas == nil || *d.Replicas < 3 {
		f.add("Deployment: has fewer than three replicas")
	}
	r := d.Strategy.RollingUpdate
	if d.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || r == nil || r.MaxUnavailable == nil || r.MaxUnavailable.IntValue() != 0 ||
		r.MaxSurge == nil || r.MaxSurge.IntValue() < 1 {
		f.add("Deployment: takes an old replica away before there is a new one")
	}
	if len(d.Template.Spec.TopologySpreadConstraints) == 0 {
		f.add("Deployment: may put all replicas on one machine")
	}
	b := m.Budget.Spec
	if b.MaxUnavailable == nil || b.MaxUnavailable.IntValue() < 1 || d.Replicas != nil && b.MaxUnavailable.IntValue() >= int(*d.Replicas) {
		f.add("PodDisruptionBudget: allows all replicas to go, or none")
	}
}

func (m *Manifests) checkServer(f *findings) {
	pod := m.Deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		return
	}
	c := pod.Containers[0]
	checkProbe(f, c, "startup", c.StartupProbe, "/health")
	checkProbe(f, c, "readiness", c.ReadinessProbe, "/health")
	checkProbe(f, c, "liveness", c.LivenessProbe, "/health/live")
	listens, reachable := port(c.Args)
	if !reachable || len(c.Ports) != 1 || int(c.Ports[0].ContainerPort) != listens {
		f.add("Deployment: the program does not listen where the container has its port")
	}
	takes, err := stopping(c.Args)
	if err != nil {
		f.add("Deployment: %v", err)
	}
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		f.add("Deployment: a replica that goes does not wait until the proxies know")
	} else {
		takes += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || time.Duration(*grace)*time.Second < takes {
		f.add("Deployment: the program may take %v to end, and is killed before", takes)
	}
}

func checkProbe(f *findings, c corev1.Container, name string, p *corev1.Probe, path string) {
	switch {
	case p == nil || p.HTTPGet == nil:
		f.add("Deployment: has no %s probe over HTTP", name)
	case p.HTTPGet.Path != path:
		f.add("Deployment: the %s probe asks for %s", name, p.HTTPGet.Path)
	case !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }):
		f.add("Deployment: the %s probe asks at a port that there is not", name)
	}
}

// checkReach checks that the objects mean the same pods.
func (m *Manifests) checkReach(f *findings) {
	pods := labels.Set(m.Deployment.Spec.Template.Labels)
	of := func(what string, s *metav1.LabelSelector) {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(pods) {
			f.add("%s: does not select the replicas", what)
		}
		if err == nil && selector.Matches(labels.Set(m.Job.Spec.Template.Labels)) {
			f.add("%s: selects the migration too", what)
		}
	}
	of("Deployment", m.Deployment.Spec.Selector)
	of("Service", &metav1.LabelSelector{MatchLabels: m.Service.Spec.Selector})
	of("PodDisruptionBudget", m.Budget.Spec.Selector)
	for _, c := range m.Deployment.Spec.Template.Spec.TopologySpreadConstraints {
		of("topologySpreadConstraints", c.LabelSelector)
	}
	if len(m.Service.Spec.Ports) != 1 || m.Service.Spec.Ports[0].TargetPort.StrVal == "" {
		f.add("Service: has no port that it sends to by name")
	}
}
