package transcript_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/conformance/transcript"
)

const recorded = `# a name
# what it is

## +0.001s blank body

>>> exchange 1, connection 2, +0.057s
POST /a%20b?x=1 HTTP/1.1
content-type: application/json

{"a":1}
<<< +0.085s
HTTP/1.1 202 Accepted
X-Two: 1
x-two: 2

{"b":2}

## SDK send() -> {"b":2}

>>> exchange 2
GET /s HTTP/1.1

<<<
HTTP/1.1 200 OK
content-type: text/event-stream

~~ +0.368s 9B
event: data
data:[]

~~ +15.365s 13B
: heartbeat

<<< end: client closed the connection

>>> exchange 3, connection 2, +1s
HEAD /h HTTP/1.1

<<< (no response: client closed the connection)
`

func TestParse(t *testing.T) {
	got, err := transcript.Parse([]byte(recorded))
	if err != nil {
		t.Fatal(err)
	}
	want := &transcript.Transcript{
		Notes: []transcript.Note{{Text: "blank body"}, {Text: `SDK send() -> {"b":2}`, Before: 1}},
		Exchanges: []*transcript.Exchange{
			{
				Method: "POST", Target: "/a%20b?x=1", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"a":1}`),
				Response: &transcript.Response{Status: 202, Header: http.Header{"X-Two": {"1", "2"}}, Body: []byte(`{"b":2}`)},
			},
			{
				Method: "GET", Target: "/s", Header: http.Header{}, Body: []byte{},
				Response: &transcript.Response{
					Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: []byte("event: data\ndata:[]\n\n: heartbeat\n\n"),
					Pieces: []transcript.Piece{
						{At: 368 * time.Millisecond, Data: "event: data\ndata:[]\n\n"},
						{At: 15365 * time.Millisecond, Data: ": heartbeat\n\n"},
					},
				},
			},
			{Method: "HEAD", Target: "/h", Header: http.Header{}, Body: []byte{}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
}

func TestMask(t *testing.T) {
	var m transcript.Mask
	in := `sub_01M8N3PVF1XV9Y3ES34H4NN5HT inst_01M8N3PVF9R4V3V72J2XRW8YGB sub_01M8N3PVMF8AA5WZM7D2DFK8V0 sub_01M8N3PVF1XV9Y3ES34H4NN5HT
entry_direct_c3ViXzAx entry_01M8N3PVHKGXB05XEE7SG4S5A4 entry_submission_aborted_sub_01M8N3QM3FTAJVAAACCBVMN4KJ 2026-11-30T02:14:27.635Z
sub_ik_888280a5654673f01f5542c0c4f22159 att_direct_sub_01M8N3QQ942M5NJKBDXFKNWEQ9_0 call_t1_0_0 turn_`
	want := `<sub 1> <inst 1> <sub 2> <sub 1>
<entry_direct 1> <entry 1> <entry_submission_aborted 1> <time>
<sub_ik 1> <att_direct 1> call_t1_0_0 turn_`
	if diff := cmp.Diff(want, m.Text(in)); diff != "" {
		t.Errorf("masked (-want +got):\n%s", diff)
	}
}

func TestParseErrors(t *testing.T) {
	for _, s := range []string{">>> exchange 1\nGET\n", ">>> exchange 1\nGET / x\nno header\n", ">>> exchange 1\nGET / x\n\n<<<\nHTTP/1.1 two\n", ">>> exchange 1\nGET / x\n\n~~ +x 1B\n"} {
		if _, err := transcript.Parse([]byte(s)); err == nil {
			t.Errorf("Parse(%q) took it", s)
		}
	}
}
