package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flue-go/flue/store"
)

var admitChecks = []check{
	{
		name: "AdmitCreates",
		rule: "The first admission creates the instance: its birth is batch 0 and its own batch follows, under one step.",
		run:  checkAdmitCreates,
	},
	{
		name: "RacingCreates",
		rule: "Of concurrent admissions to a missing instance exactly one creates it, and every receipt carries its uid.",
		run:  checkRacingCreates,
	},
	{
		name: "RacingConditionalCreates",
		rule: "Of concurrent admissions that must create the instance exactly one succeeds; the others learn the uid that exists.",
		run:  checkRacingConditionalCreates,
	},
	{
		name: "Conditions",
		rule: "An admission whose condition does not hold is refused with a *ConditionError that says what exists, and leaves nothing.",
		run:  checkConditions,
	},
	{
		name: "Replay",
		rule: "A submission admitted again with the same identity gets the first receipt, whatever else the replay says, and writes nothing.",
		run:  checkReplay,
	},
	{
		name: "RacingReplays",
		rule: "Concurrent admissions of one submission yield one submission and one receipt, also where only the first could meet the condition.",
		run:  checkRacingReplays,
	},
	{
		name: "Conflict",
		rule: "A submission id used again with another identity is refused with ErrConflict and changes nothing; ids of other instances do not matter.",
		run:  checkConflict,
	},
	{
		name: "RacingConflicts",
		rule: "Of concurrent admissions of one id with different identities exactly one is accepted and the others are refused with ErrConflict.",
		run:  checkRacingConflicts,
	},
	{
		name: "AdmissionOrder",
		rule: "If one admission was acknowledged before another was sent, it precedes the other in the journal.",
		run:  checkAdmissionOrder,
	},
	{
		name: "AdmissionDisturbsNobody",
		rule: "An admission takes no ownership and fences nobody; its batches carry no epoch.",
		run:  checkAdmissionDisturbsNobody,
	},
	{
		name: "Bounds",
		rule: "Arguments out of bounds are refused with ErrInvalid or ErrTooLarge and leave nothing.",
		run:  checkBounds,
	},
	{
		name: "ArgumentsAreNotKept",
		rule: "A caller may reuse its buffers as soon as a call has returned.",
		run:  checkArgumentsNotKept,
	},
	{
		name: "AcceptedAt",
		rule: "The time of acceptance is kept in UTC to the microsecond, and the receipt shows what is kept.",
		run:  checkAcceptedAt,
	},
	{
		name: "AddressesAreDistinct",
		rule: "Instances are told apart by agent and id exactly: by case, by normalization, and by which part a character is in.",
		run:  checkAddresses,
	},
	{
		name: "Abort",
		rule: "An abort is written if the instance has unsettled submissions, without an owner's epoch, and not otherwise.",
		run:  checkAbort,
	},
}

func checkAdmitCreates(k *kit) {
	r := k.admit(admission(addr, "s1"))
	equal(k, "receipt", r, store.Receipt{
		Submission: "s1", UID: "uid-s1", AcceptedAt: accepted, Before: 0, Offset: 1, Created: true,
	})
	equal(k, "instance", k.instance(addr), store.Instance{
		Address: addr, UID: "uid-s1", Incarnation: "inc-s1", Head: 1, Unsettled: 1,
	})
	equal(k, "journal", k.payloads(addr), []string{"birth by s1", "admit s1"})
	equal(k, "submission", k.submission(addr, "s1"), store.Submission{ID: "s1", Offset: 1, AcceptedAt: accepted})

	r = k.admit(admission(addr, "s2"))
	equal(k, "second receipt", r, store.Receipt{
		Submission: "s2", UID: "uid-s1", AcceptedAt: accepted, Before: 1, Offset: 2,
	})
	equal(k, "journal", k.payloads(addr), []string{"birth by s1", "admit s1", "admit s2"})
}

func checkRacingCreates(k *kit) {
	const n = 32
	receipts := make([]store.Receipt, n)
	concurrently(n, func(i int) {
		var err error
		if receipts[i], err = k.Admit(k.Context(), admission(addr, fmt.Sprint("s", i))); err != nil {
			k.Errorf("Admit s%d: %v", i, err)
		}
	})
	in := k.instance(addr)
	journal := k.payloads(addr)
	if in.Head != n || in.Unsettled != n || len(journal) != n+1 {
		k.Fatalf("after %d admissions: %+v with %d batches", n, in, len(journal))
	}
	created := 0
	for i, r := range receipts {
		if r.Created {
			created++
			equal(k, "birth", journal[0], fmt.Sprint("birth by s", i))
			equal(k, "uid", in.UID, fmt.Sprint("uid-s", i))
		}
		if r.UID != in.UID || r.Before != r.Offset-1 || journal[r.Offset] != fmt.Sprint("admit s", i) {
			k.Errorf("receipt %d: %+v, uid %s, batch %q", i, r, in.UID, journal[r.Offset])
		}
	}
	equal(k, "receipts that say created", created, 1)
}

func checkRacingConditionalCreates(k *kit) {
	const n = 32
	receipts := make([]store.Receipt, n)
	errs := make([]error, n)
	concurrently(n, func(i int) {
		a := admission(addr, fmt.Sprint("s", i))
		a.Condition.Create = true
		receipts[i], errs[i] = k.Admit(k.Context(), a)
	})
	uid := k.instance(addr).UID
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			equal(k, "winner's uid", receipts[i].UID, uid)
			continue
		}
		k.condition(fmt.Sprint("admission ", i), err, &store.ConditionError{Address: addr, Exists: true, UID: uid})
	}
	equal(k, "successful admissions", won, 1)
	equal(k, "batches", len(k.journal(addr)), 2)
}

func checkConditions(k *kit) {
	missing := store.Address{Agent: "clerk", ID: "missing"}
	k.admit(admission(addr, "s1"))
	exists := &store.ConditionError{Address: addr, Exists: true, UID: "uid-s1"}
	for _, tt := range []struct {
		name  string
		addr  store.Address
		cond  store.Condition
		birth bool
		want  *store.ConditionError
	}{
		{"create, exists", addr, store.Condition{Create: true}, true, exists},
		{"create without birth, exists", addr, store.Condition{Create: true}, false, exists},
		{"another uid", addr, store.Condition{UID: "uid-s2"}, true, exists},
		{"uid, missing", missing, store.Condition{UID: "uid-s1"}, true, &store.ConditionError{Address: missing}},
		{"no birth, missing", missing, store.Condition{}, false, &store.ConditionError{Address: missing}},
		{"create without birth, missing", missing, store.Condition{Create: true}, false, &store.ConditionError{Address: missing}},
	} {
		a := admission(tt.addr, "refused")
		a.Condition = tt.cond
		a.Attachments = []store.Attachment{attachment("refused", "data")}
		if !tt.birth {
			a.Birth = nil
		}
		k.unchanged(tt.name, tt.addr, []string{"s1", "refused"}, func() {
			_, err := k.Admit(k.Context(), a)
			k.condition(tt.name, err, tt.want)
		})
		_, err := k.Attachment(k.Context(), tt.addr, "refused")
		k.refused(tt.name+": attachment", err, store.ErrNotFound)
	}

	same := admission(addr, "s2")
	same.Condition.UID = "uid-s1"
	equal(k, "offset with the right uid", k.admit(same).Offset, 2)
	plain := admission(addr, "s3")
	plain.Birth = nil
	equal(k, "offset without birth", k.admit(plain).Offset, 3)
	create := admission(missing, "s1")
	create.Condition.Create = true
	equal(k, "created", k.admit(create).Created, true)
}

func checkReplay(k *kit) {
	first := k.admit(admission(addr, "s1"))
	second := k.admit(admission(addr, "s2"))
	lease := k.take("n1", addr)
	replays := map[string]func(*store.Admission){
		"the same":                   func(*store.Admission) {},
		"create":                     func(a *store.Admission) { a.Condition.Create = true },
		"another uid":                func(a *store.Admission) { a.Condition.UID = "other" },
		"no birth":                   func(a *store.Admission) { a.Birth = nil },
		"another payload":            func(a *store.Admission) { a.Payload = []byte("something else") },
		"another time":               func(a *store.Admission) { a.AcceptedAt = accepted.Add(time.Hour) },
		"a node":                     func(a *store.Admission) { a.Node = "n1" },
		"another attachment":         func(a *store.Admission) { a.Attachments = []store.Attachment{attachment("new", "data")} },
		"another birth and identity": func(a *store.Admission) { a.Birth = &store.Birth{UID: "other"}; a.Identity = bytes.Clone(a.Identity) },
	}
	check := func(when string) {
		for name, change := range replays {
			for id, want := range map[string]store.Receipt{"s1": first, "s2": second} {
				want.Duplicate = true
				a := admission(addr, id)
				change(a)
				k.unchanged("replay with "+name, addr, []string{"s1", "s2"}, func() {
					equal(k, "receipt "+when+" with "+name, k.admit(a), want)
				})
			}
		}
		_, err := k.Attachment(k.Context(), addr, "new")
		k.refused("attachment of a replay", err, store.ErrNotFound)
	}
	check("while open")
	k.append(lease, "done", store.Settlement{Submission: "s1", Outcome: "completed"})
	check("after settlement")
}

func checkRacingReplays(k *kit) {
	const n = 32
	receipts := make([]store.Receipt, n)
	concurrently(n, func(i int) {
		a := admission(addr, "s1")
		a.Condition.Create = true
		a.Birth.UID = fmt.Sprint("uid-", i)
		a.AcceptedAt = accepted.Add(time.Duration(i) * time.Second)
		var err error
		if receipts[i], err = k.Admit(k.Context(), a); err != nil {
			k.Errorf("Admit: %v", err)
		}
	})
	equal(k, "batches", len(k.journal(addr)), 2)
	firsts := 0
	for _, r := range receipts {
		if !r.Duplicate {
			firsts++
		}
		r.Duplicate = receipts[0].Duplicate
		equal(k, "receipt", r, receipts[0])
	}
	equal(k, "receipts that are not duplicates", firsts, 1)
}

func checkConflict(k *kit) {
	k.admit(admission(addr, "s1"))
	for name, identity := range map[string][]byte{
		"another":   []byte("another"),
		"none":      nil,
		"a longer":  []byte("identity of s1+"),
		"a shorter": []byte("identity of s"),
	} {
		a := admission(addr, "s1")
		a.Identity = identity
		a.Condition.Create = true // a conflict is told before a failed condition
		k.unchanged("conflict", addr, []string{"s1"}, func() {
			_, err := k.Admit(k.Context(), a)
			k.refused("admission with "+name+" identity", err, store.ErrConflict)
		})
	}
	a := admission(other(1), "s1")
	a.Identity = []byte("another")
	equal(k, "the same id in another instance", k.admit(a).Duplicate, false)
}

func checkRacingConflicts(k *kit) {
	const n = 16
	errs := make([]error, n)
	concurrently(n, func(i int) {
		a := admission(addr, "s1")
		a.Identity = []byte(fmt.Sprint("identity ", i))
		_, errs[i] = k.Admit(k.Context(), a)
	})
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			continue
		}
		k.refused(fmt.Sprint("admission ", i), err, store.ErrConflict)
	}
	equal(k, "successful admissions", won, 1)
}

func checkAdmissionOrder(k *kit) {
	// Others are admitted all the while, so that groups form.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		concurrently(4, func(g int) {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					k.Admit(k.Context(), admission(addr, fmt.Sprintf("noise-%d-%d", g, i)))
				}
			}
		})
	}()
	last := int64(-1)
	for i := range 50 {
		r := k.admit(admission(addr, fmt.Sprint("s", i)))
		if r.Offset <= last {
			k.Errorf("submission %d has offset %d, the one before it %d", i, r.Offset, last)
		}
		last = r.Offset
	}
	close(stop)
	<-done
}

func checkAdmissionDisturbsNobody(k *kit) {
	l := k.owned(addr, "n1")
	k.renew("n2")
	a := admission(addr, "s2")
	a.Node = "n2"
	if r := k.admit(a); r.Lease != nil {
		k.Errorf("an admission from n2 was given the instance that n1 owns: %+v", *r.Lease)
	}
	if ok, err := k.Abort(k.Context(), addr, []byte("abort")); !ok || err != nil {
		k.Errorf("Abort = %v, %v", ok, err)
	}
	equal(k, "offset of the owner's append", k.append(l, "work"), 4)
	var epochs []int64
	for _, b := range k.journal(addr) {
		epochs = append(epochs, b.Epoch)
	}
	equal(k, "epochs of the batches", epochs, []int64{0, 0, 0, 0, l.Epoch})
}

func checkBounds(k *kit) {
	long := strings.Repeat("x", store.MaxName+1)
	with := func(change func(*store.Admission)) *store.Admission {
		a := admission(addr, "s2")
		change(a)
		return a
	}
	l := k.owned(addr, "n1")
	for _, tt := range []struct {
		name string
		a    *store.Admission
		want error
	}{
		{"no agent", with(func(a *store.Admission) { a.Agent = "" }), store.ErrInvalid},
		{"no instance id", with(func(a *store.Admission) { a.ID = "" }), store.ErrInvalid},
		{"long instance id", with(func(a *store.Admission) { a.ID = long }), store.ErrTooLarge},
		{"zero byte", with(func(a *store.Admission) { a.ID = "a\x00b" }), store.ErrInvalid},
		{"not UTF-8", with(func(a *store.Admission) { a.ID = "\xff" }), store.ErrInvalid},
		{"no submission id", with(func(a *store.Admission) { a.Submission = "" }), store.ErrInvalid},
		{"no uid", with(func(a *store.Admission) { a.Birth.UID = "" }), store.ErrInvalid},
		{"long identity", with(func(a *store.Admission) { a.Identity = []byte(long) }), store.ErrTooLarge},
		{"large payload", with(func(a *store.Admission) { a.Payload = make([]byte, store.MaxBatch+1) }), store.ErrTooLarge},
		{"large birth", with(func(a *store.Admission) { a.Birth.Payload = make([]byte, store.MaxBatch+1) }), store.ErrTooLarge},
		{"wrong digest", with(func(a *store.Admission) {
			a.Attachments = []store.Attachment{{ID: "x", Data: []byte("data")}}
		}), store.ErrInvalid},
		{"many attachments", with(func(a *store.Admission) {
			a.Attachments = make([]store.Attachment, store.MaxAttachments+1)
		}), store.ErrTooLarge},
	} {
		k.unchanged(tt.name, addr, []string{"s1", "s2"}, func() {
			_, err := k.Admit(k.Context(), tt.a)
			k.refused("Admit with "+tt.name, err, tt.want)
		})
	}
	k.unchanged("refused write", addr, []string{"s1"}, func() {
		_, err := k.Append(k.Context(), l, store.Write{Payload: make([]byte, store.MaxBatch+1)})
		k.refused("Append of a large payload", err, store.ErrTooLarge)
		_, err = k.Append(k.Context(), l, store.Write{Settle: []store.Settlement{{Submission: "s1"}}})
		k.refused("Append of a settlement without outcome", err, store.ErrInvalid)
		_, err = k.Abort(k.Context(), addr, make([]byte, store.MaxBatch+1))
		k.refused("Abort with a large payload", err, store.ErrTooLarge)
	})
	k.refused("Renew without a name", k.Renew(k.Context(), "", time.Second), store.ErrInvalid)
	k.refused("Renew for no time", k.Renew(k.Context(), "n1", 0), store.ErrInvalid)
}

func checkArgumentsNotKept(k *kit) {
	a := admission(addr, "s1")
	a.Attachments = []store.Attachment{attachment("file", "attached")}
	k.admit(a)
	for _, p := range [][]byte{a.Payload, a.Birth.Payload, a.Identity, a.Attachments[0].Data} {
		clear(p)
	}
	l := k.take("n1", addr)
	work := []byte("work")
	if _, err := k.Append(k.Context(), l, store.Write{Payload: work}); err != nil {
		k.Fatal(err)
	}
	clear(work)
	abort := []byte("abort")
	if _, err := k.Abort(k.Context(), addr, abort); err != nil {
		k.Fatal(err)
	}
	clear(abort)

	equal(k, "journal", k.payloads(addr), []string{"birth by s1", "admit s1", "work", "abort"})
	equal(k, "replay", k.admit(admission(addr, "s1")).Duplicate, true)
	at, err := k.Attachment(k.Context(), addr, "file")
	if err != nil || string(at.Data) != "attached" {
		k.Errorf("attachment = %q, %v", at.Data, err)
	}
}

func checkAcceptedAt(k *kit) {
	zone := time.FixedZone("somewhere", 2*60*60)
	for i, tt := range []struct{ give, want time.Time }{
		{accepted, accepted},
		{accepted.In(zone), accepted},
		{accepted.Add(999), accepted},
		{time.Date(1969, 1, 1, 0, 0, 0, 999, time.UTC), time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
		{time.Time{}, time.Time{}},
	} {
		id := fmt.Sprint("s", i)
		a := admission(addr, id)
		a.AcceptedAt = tt.give
		equal(k, "receipt", k.admit(a).AcceptedAt, tt.want)
		equal(k, "replay", k.admit(a).AcceptedAt, tt.want)
		equal(k, "submission", k.submission(addr, id).AcceptedAt, tt.want)
	}
}

func checkAddresses(k *kit) {
	addrs := []store.Address{
		{Agent: "a", ID: "b/c"},
		{Agent: "a/b", ID: "c"},
		{Agent: "a", ID: "B/c"},
		{Agent: "a", ID: "b/c "},
		{Agent: "a", ID: "caf\u00e9"},
		{Agent: "a", ID: "cafe\u0301"},
		{Agent: "a", ID: "%_'\"\\?*"},
		{Agent: "a", ID: "1"},
		{Agent: "a", ID: "01"},
		{Agent: "a", ID: "1.0"},
		{Agent: "b/c", ID: "a"},
		{Agent: strings.Repeat("x", store.MaxName), ID: strings.Repeat("y", store.MaxName)},
	}
	for i, a := range addrs {
		ad := admission(a, "s")
		ad.Birth.UID = fmt.Sprint("uid-", i)
		k.admit(ad)
	}
	for i, a := range addrs {
		in := k.instance(a)
		if in.Address != a || in.UID != fmt.Sprint("uid-", i) {
			k.Errorf("Instance(%+v) = %+v", a, in)
		}
	}
}

func checkAbort(k *kit) {
	abort := func(want bool) {
		k.Helper()
		got, err := k.Abort(k.Context(), addr, []byte("abort"))
		if got != want || err != nil {
			k.Errorf("Abort = %v, %v, want %v", got, err, want)
		}
	}
	abort(false)
	if _, err := k.Instance(k.Context(), addr); !errors.Is(err, store.ErrNotFound) {
		k.Fatalf("after an abort of a missing instance: %v", err)
	}
	l := k.owned(addr, "n1")
	k.admit(admission(addr, "s2"))
	abort(true)
	abort(true)
	k.append(l, "end 1", store.Settlement{Submission: "s1", Outcome: "aborted"})
	abort(true)
	k.append(l, "end 2", store.Settlement{Submission: "s2", Outcome: "aborted"})
	abort(false)
	equal(k, "journal", k.payloads(addr), []string{
		"birth by s1", "admit s1", "admit s2", "abort", "abort", "end 1", "abort", "end 2",
	})
}
