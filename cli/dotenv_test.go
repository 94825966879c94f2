package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDotenv(t *testing.T) {
	tests := []struct {
		name string
		text string
		want map[string]string
	}{
		{"empty", "", map[string]string{}},
		{"plain", "A=1\nB=two\n", map[string]string{"A": "1", "B": "two"}},
		{"no newline at the end", "A=1", map[string]string{"A": "1"}},
		{"empty value", "A=\nB= \n", map[string]string{"A": "", "B": ""}},
		{"space around", "  A = 1 2  \n", map[string]string{"A": "1 2"}},
		{"comments", "# A=1\n  # B=2\nC=3 # three\nD=4#four\nE=# five\n", map[string]string{"C": "3", "D": "4#four", "E": ""}},
		{"export", "export A=1\nexport\tB=2\nexported=3\nexport=4\n", map[string]string{"A": "1", "B": "2", "exported": "3", "export": "4"}},
		{"equals in the value", "A=b=c==\n", map[string]string{"A": "b=c=="}},
		{"nothing is expanded", "A=$HOME/x\nB=\"${A}\"\nC='`id`'\n", map[string]string{"A": "$HOME/x", "B": "${A}", "C": "`id`"}},
		{"single quotes", `A='a "b" \n #c' # d`, map[string]string{"A": `a "b" \n #c`}},
		{"double quotes", `A="a\tb\n\"c\" \\ \$ 'd' #e"`, map[string]string{"A": "a\tb\n\"c\" \\ $ 'd' #e"}},
		{"several lines", "A=\"-----BEGIN\nkey\n\"\nB='x\ny'\nC=3", map[string]string{"A": "-----BEGIN\nkey\n", "B": "x\ny", "C": "3"}},
		{"windows", "\ufeffA=1\r\n\r\nB=\"x\r\ny\"\r\n# c\r\nC=3\r\n", map[string]string{"A": "1", "B": "x\ny", "C": "3"}},
		{"other letters", "A=größe\n", map[string]string{"A": "größe"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars, err := parseDotenv(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, v := range vars {
				got[v.name] = v.value
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseDotenvErrors(t *testing.T) {
	tests := []struct {
		name string
		text string
		want string // what the error begins with
	}{
		{"no equals sign", "A=1\nsecret\n", "line 2: there is no \"=\""},
		{"no name", "\n\n=secret\n", "line 3: what stands before"},
		{"digit first", "1A=secret\n", "line 1: what stands before"},
		{"space in the name", "A B=secret\n", "line 1: what stands before"},
		{"name in quotes", "'A'=secret\n", "line 1: what stands before"},
		{"unclosed single quote", "A='secret\nB=2\n", "line 1: the quote that begins here"},
		{"unclosed double quote", "X=1\nA=\"secret\n", "line 2: the quote that begins here"},
		{"escaped closing quote", "A=\"secret\\\"\n", "line 1: the quote that begins here"},
		{"backslash at the end", "A=\"secret\\", "line 1: the quote that begins here"},
		{"unknown escape", "A=\"one\n\\x secret\"\n", "line 2: unknown escape"},
		{"text after the quote", "A=\"one\ntwo\" secret\n", "line 2: there is text after"},
		{"comment without a space", "A='secret'# c\n", "line 1: there is text after"},
		{"quote inside", "A=sec\"ret\n", "line 1: there is a quote"},
		{"carriage return inside", "A=sec\rret\n", "line 1: there is a quote or a carriage return"},
		{"twice", "A=1\nB=2\nA=secret\n", "line 3: A is already set on line 1"},
		{"twice after several lines", "A='1\n2'\nB=2\nA=secret\n", "line 4: A is already set on line 1"},
		{"zero byte", "A=1\nB=\x00secret\n", "line 2: it is not text"},
		{"zero byte in a quoted value", "A='1\n\x00secret'\n", "line 1: it is not text"},
		{"not UTF-8", "A=\xffsecret\n", "line 1: it is not text"},
		{"too large", "#" + strings.Repeat("x", maxDotenv), "it has 1048577 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vars, err := parseDotenv(tt.text)
			if err == nil {
				t.Fatalf("no error, but %v", vars)
			}
			if !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %q, want one that begins with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q shows the text of the file", err)
			}
		})
	}
}

func FuzzParseDotenv(f *testing.F) {
	for _, s := range []string{"A=1\n", "export A='x\ny' # c\r\n", `A="\n\$"`, "A=\"", "#", "A==#\n\n", "\ufeff", "A='\n", "A\x00=", "A=\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars, err := parseDotenv(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") && !strings.HasPrefix(err.Error(), "it has ") {
				t.Fatalf("error %q names no line", err)
			}
			return
		}
		// What was read can be written so that it is read again.
		var b strings.Builder
		line := 0
		for _, v := range vars {
			if !isVariableName(v.name) || v.line <= line || v.line > strings.Count(text, "\n")+1 {
				t.Fatalf("variable %+v after line %d of %q", v, line, text)
			}
			line = v.line
			b.WriteString("export " + v.name + "=\"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "\r", `\r`, "\n", `\n`).Replace(v.value) + "\"\n")
		}
		again, err := parseDotenv(b.String())
		if err != nil {
			t.Fatalf("%q, written as %q: %v", text, b.String(), err)
		}
		for i := range again {
			again[i].line = vars[i].line
		}
		if diff := cmp.Diff(vars, again, cmp.AllowUnexported(variable{})); diff != "" {
			t.Fatalf("%q, written as %q (-want +got):\n%s", text, b.String(), diff)
		}
	})
}
