package store_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flue-go/flue/store"
)

func TestAddressValidate(t *testing.T) {
	long := strings.Repeat("x", store.MaxName)
	for _, tt := range []struct {
		name string
		addr store.Address
		want error
	}{
		{"plain", store.Address{Agent: "clerk", ID: "order/7 é"}, nil},
		{"as long as can be", store.Address{Agent: long, ID: long}, nil},
		{"no agent", store.Address{ID: "1"}, store.ErrInvalid},
		{"no id", store.Address{Agent: "clerk"}, store.ErrInvalid},
		{"too long", store.Address{Agent: "clerk", ID: long + "x"}, store.ErrTooLarge},
		{"zero byte", store.Address{Agent: "cl\x00erk", ID: "1"}, store.ErrInvalid},
		{"not UTF-8", store.Address{Agent: "clerk", ID: "\xc3"}, store.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.addr.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("Validate: error %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAdmissionValidate(t *testing.T) {
	data := []byte("data")
	for _, tt := range []struct {
		name   string
		change func(*store.Admission)
		want   error
	}{
		{"complete", func(*store.Admission) {}, nil},
		{"no birth", func(a *store.Admission) { a.Birth = nil }, nil},
		{"no payload", func(a *store.Admission) { a.Payload = nil }, nil},
		{"no submission", func(a *store.Admission) { a.Submission = "" }, store.ErrInvalid},
		{"bad node", func(a *store.Admission) { a.Node = "\xff" }, store.ErrInvalid},
		{"bad condition", func(a *store.Admission) { a.Condition.UID = "\x00" }, store.ErrInvalid},
		{"birth without uid", func(a *store.Admission) { a.Birth.UID = "" }, store.ErrInvalid},
		{"attachment without id", func(a *store.Admission) { a.Attachments[0].ID = "" }, store.ErrInvalid},
		{"attachment with a bad name", func(a *store.Admission) { a.Attachments[0].Filename = "\x00" }, store.ErrInvalid},
		{"attachment with a long media type", func(a *store.Admission) {
			a.Attachments[0].MediaType = strings.Repeat("x", store.MaxName+1)
		}, store.ErrTooLarge},
		{"attachment with other data", func(a *store.Admission) { a.Attachments[0].Data = []byte("date") }, store.ErrInvalid},
		{"large attachment", func(a *store.Admission) { a.Attachments[0].Data = make([]byte, store.MaxAttachment+1) }, store.ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &store.Admission{
				Address: store.Address{Agent: "clerk", ID: "1"}, Submission: "s1", Payload: data,
				Birth:       &store.Birth{UID: "u1", Payload: data},
				Attachments: []store.Attachment{{ID: "a1", MediaType: "text/plain", Digest: sha256.Sum256(data), Data: data}},
			}
			tt.change(a)
			if err := a.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("Validate: error %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWriteValidate(t *testing.T) {
	for _, tt := range []struct {
		name string
		w    store.Write
		want error
	}{
		{"empty", store.Write{}, nil},
		{"settles", store.Write{Settle: []store.Settlement{{Submission: "s1", Outcome: "failed"}}}, nil},
		{"settles nothing", store.Write{Settle: []store.Settlement{{Outcome: "failed"}}}, store.ErrInvalid},
		{"settles as nothing", store.Write{Settle: []store.Settlement{{Submission: "s1"}}}, store.ErrInvalid},
		{"settles too many", store.Write{Settle: make([]store.Settlement, store.MaxSettle+1)}, store.ErrTooLarge},
		{"large", store.Write{Payload: make([]byte, store.MaxBatch+1)}, store.ErrTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.w.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("Validate: error %v, want %v", err, tt.want)
			}
		})
	}
}

func TestCheckCondition(t *testing.T) {
	const refused = true
	for _, tt := range []struct {
		name   string
		cond   store.Condition
		birth  bool
		exists string // its uid
		want   bool
	}{
		{"any, missing", store.Condition{}, true, "", !refused},
		{"any, exists", store.Condition{}, true, "u1", !refused},
		{"no birth, missing", store.Condition{}, false, "", refused},
		{"no birth, exists", store.Condition{}, false, "u1", !refused},
		{"create, missing", store.Condition{Create: true}, true, "", !refused},
		{"create, exists", store.Condition{Create: true}, true, "u1", refused},
		{"uid, missing", store.Condition{UID: "u1"}, true, "", refused},
		{"uid, exists", store.Condition{UID: "u1"}, true, "u1", !refused},
		{"another uid", store.Condition{UID: "u2"}, true, "u1", refused},
		{"create and uid", store.Condition{Create: true, UID: "u1"}, true, "u1", refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &store.Admission{Condition: tt.cond}
			if tt.birth {
				a.Birth = &store.Birth{UID: "new"}
			}
			err := a.CheckCondition(tt.exists)
			if (err != nil) != tt.want {
				t.Fatalf("CheckCondition: error %v, refused is %v", err, tt.want)
			}
			var ce *store.ConditionError
			if err != nil && (!errors.As(err, &ce) || ce.Exists != (tt.exists != "") || ce.UID != tt.exists) {
				t.Errorf("CheckCondition: %+v", err)
			}
		})
	}
}

func TestTimestamp(t *testing.T) {
	now := time.Now()
	got := store.Timestamp(now)
	if d := now.Sub(got); d < 0 || d >= time.Microsecond || got.Location() != time.UTC {
		t.Errorf("Timestamp(%v) = %v", now, got)
	}
	if got != store.Timestamp(got) {
		t.Error("a timestamp changes when it is made one again")
	}
}
