package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// The program in the README builds, and says what it needs when there is no key.
func TestReadmeProgram(t *testing.T) {
	blocks := programs(t, "README.md")
	if len(blocks) != 1 {
		t.Fatalf("the README has %d programs, want 1", len(blocks))
	}
	dir := clone(t)
	main := write(t, dir, "readme", blocks[0])
	_, stderr, err := command(dir, "go", "run", main, "run", "-m", "Where is order ORD-1?")
	if err == nil || !strings.Contains(stderr, "set ANTHROPIC_API_KEY in the environment or in .env") {
		t.Errorf("the program of the README without a key: %v\n%s", err, stderr)
	}
}

// The programs in the guide build.
func TestGuidePrograms(t *testing.T) {
	dir := clone(t)
	blocks := programs(t, "docs/getting-started.md")
	if len(blocks) < 3 {
		t.Fatalf("the guide has %d programs", len(blocks))
	}
	args := []string{"vet"}
	for i, b := range blocks {
		args = append(args, write(t, dir, "guide"+string(rune('a'+i)), b))
	}
	if _, stderr, err := command(dir, "go", args...); err != nil {
		t.Errorf("the programs of the guide: %v\n%s", err, stderr)
	}
}

// The first command of the README does in a fresh clone what the README shows.
func TestReadmeCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a POSIX shell")
	}
	readme := read(t, "README.md")
	shell := block(t, readme, "sh")
	if shell != "go run ./examples/orders run -m \"Where is order ORD-2024-0042?\"\n" {
		t.Errorf("the first command of the README is %q", shell)
	}
	stdout, stderr, err := command(clone(t), "sh", "-c", shell)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if got, want := normal(stderr+stdout), normal(block(t, readme, "text")); got != want {
		t.Errorf("the command shows\n%s\nand the README\n%s", got, want)
	}
	if !strings.HasPrefix(stdout, "Order ORD-2024-0042") {
		t.Errorf("standard output is %q, want the reply alone", stdout)
	}
}

// normal takes out what is different in each run.
func normal(s string) string {
	s = regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{26}\b`).ReplaceAllString(s, "ID")
	return regexp.MustCompile(`\((<1|\d+)ms\)`).ReplaceAllString(s, "(TIME)")
}

// The links of the documents lead somewhere.
func TestLinks(t *testing.T) {
	for _, doc := range []string{"README.md", "docs/getting-started.md", "docs/cli.md"} {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`).FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the code blocks of a language.
func blocks(text, language string) (found []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func block(t *testing.T, text, language string) string {
	t.Helper()
	all := blocks(text, language)
	if len(all) == 0 {
		t.Fatalf("there is no block of %s", language)
	}
	return all[0]
}

// programs returns the blocks of a document that are whole programs.
func programs(t *testing.T, doc string) (found []string) {
	t.Helper()
	for _, b := range blocks(read(t, doc), "go") {
		if strings.HasPrefix(b, "package main\n") {
			found = append(found, b)
		}
	}
	return found
}

// write puts a program into a folder of the clone and returns its package.
func write(t *testing.T, dir, name, program string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return "./" + name
}

// command runs a command as somebody does who has no key.
func command(dir, name string, args ...string) (stdout, stderr string, err error) {
	var out, log bytes.Buffer
	c := exec.Command(name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &log
	for _, kv := range os.Environ() {
		variable, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(variable, "FLUE_") && !strings.HasPrefix(variable, "ANTHROPIC_") && !strings.HasPrefix(variable, "OPENAI_") {
			c.Env = append(c.Env, kv)
		}
	}
	err = c.Run()
	return out.String(), log.String(), err
}

// clone returns a folder with what building takes, made once for all tests.
func clone(t *testing.T) string {
	t.Helper()
	dir, err := cloned()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var (
	cloneDir string // removed by TestMain
	cloned   = sync.OnceValues(func() (string, error) {
		var err error
		if cloneDir, err = os.MkdirTemp("", "flue-clone-"); err != nil {
			return "", err
		}
		return cloneDir, filepath.WalkDir(root, copyTo(cloneDir))
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if cloneDir != "" {
		if err := os.RemoveAll(cloneDir); err != nil {
			code = 1
		}
	}
	os.Exit(code)
}

// copyTo copies the files that a build needs.
func copyTo(dir string) fs.WalkDirFunc {
	return func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, path)
		if err := errors.Join(err, relErr); err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, rel), 0o700)
		}
		if !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was there a moment ago: an editor's
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, rel), data, 0o600)
	}
}
