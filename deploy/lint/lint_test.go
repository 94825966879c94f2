package lint

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const folder = ".."

// root is the folder of the module that the program is of.
const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// program is the program as the Dockerfile builds it.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lint")
	if err == nil {
		program, err = build(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the program:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build runs the command of the Dockerfile that compiles the program.
func build(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "Dockerfile"))
	if err != nil {
		return "", err
	}
	image, err := Dockerfile(text)
	if err != nil {
		return "", err
	}
	c := exec.Command("sh", "-c", strings.ReplaceAll(image.Build, "/out/", dir+"/"))
	c.Dir, c.Env = root, append(os.Environ(), "MAIN="+image.Main)
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", image.Build, err, out)
	}
	return filepath.Join(dir, "flue"), nil
}

func dockerfile(t *testing.T) *Image {
	t.Helper()
	image, err := Dockerfile([]byte(read(t, folder+"/Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func compose(t *testing.T) *Composition {
	t.Helper()
	c, err := Compose(t.Context(), folder+"/compose.yaml", "POSTGRES_PASSWORD=secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func kubernetes(t *testing.T) *Manifests {
	t.Helper()
	m, err := Kubernetes([]byte(read(t, folder+"/kubernetes.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func none(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

func TestFiles(t *testing.T) {
	image := dockerfile(t)
	t.Run("Dockerfile", func(t *testing.T) { none(t, image.Check(strings.TrimPrefix(runtime.Version(), "go"))) })
	t.Run("compose.yaml", func(t *testing.T) { none(t, compose(t).Check()) })
	t.Run("kubernetes.yaml", func(t *testing.T) { none(t, kubernetes(t).Check(image.User)) })
}

// The program knows every command and flag that the files give it, and their
// values.
func TestCommands(t *testing.T) {
	commands := append(compose(t).Commands(), kubernetes(t).Commands()...)
	commands = append(commands, dockerfile(t).Run)
	if len(commands) != 5 {
		t.Errorf("%d commands: %q", len(commands), commands)
	}
	for _, args := range commands {
		if err := understood(args); err != nil {
			t.Error(err)
		}
	}
	for _, args := range [][]string{{"serve", "--no-such-flag"}, {"serve", "--drain", "soon"}, {"no-such-command"}} {
		if understood(args) == nil {
			t.Errorf("%q is understood", args)
		}
	}
}

// understood asks for the help of a command behind its arguments.
func understood(args []string) error {
	out, err := exec.Command(program, append(args[:len(args):len(args)], "--help")...).CombinedOutput()
	if err == nil && !regexp.MustCompile(`(?m)^  flue `+args[0]+`\b`).Match(out) {
		err = fmt.Errorf("that is no command")
	}
	if err != nil {
		return fmt.Errorf("flue %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// The image has no libraries that the program could be linked with.
func TestStatic(t *testing.T) {
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is linked dynamically")
		}
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the program needs %q (%v)", libs, err)
	}
}
