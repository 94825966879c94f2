package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/flue-go/flue/store"
)

var copyChecks = []check{
	{
		name: "Export",
		rule: "all of an instance can be listed, page by page, and copied",
		run:  checkExport,
	},
	{
		name: "Import",
		rule: "an instance that was imported is in all that can be read of it the one that was given, and is owned by nobody",
		run:  checkImport,
	},
	{
		name: "ImportGoesOn",
		rule: "an instance that was imported takes messages and owners as if it had always been there, and knows the old messages again",
		run:  checkImportGoesOn,
	},
	{
		name: "ImportRefused",
		rule: "an import of an instance that exists, or whose parts do not belong together, leaves nothing",
		run:  checkImportRefused,
	},
}

// A recorder keeps what is imported.
type recorder struct {
	store.Instance
	batches     []store.Batch
	submissions []store.Accepted
	attachments []store.Attachment
}

func (r *recorder) Import(_ context.Context, in store.Import) error {
	r.Instance = in.Instance
	return errors.Join(gather(&r.batches, in.Batches), gather(&r.submissions, in.Submissions), gather(&r.attachments, in.Attachments))
}

func gather[T any](into *[]T, from iter.Seq2[T, error]) error {
	for v, err := range from {
		if err != nil {
			return err
		}
		*into = append(*into, v)
	}
	return nil
}

// given is the import of what was recorded.
func (r *recorder) given() store.Import {
	return store.Import{Instance: r.Instance, Batches: handed(r.batches), Submissions: handed(r.submissions), Attachments: handed(r.attachments)}
}

func handed[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func checkExport(k *kit) {
	e, ok := k.Store.(store.Exporter)
	if !ok {
		k.Skip("nothing can be copied from the store: it is no store.Exporter")
	}
	_, err := e.Accepted(k.Context(), addr, "", 10)
	k.refused("Accepted of a missing instance", err, store.ErrNotFound)
	_, err = e.AttachmentIDs(k.Context(), addr, "", 10)
	k.refused("AttachmentIDs of a missing instance", err, store.ErrNotFound)

	const submissions = 1100 // more than a page
	want := &recorder{}
	k.admit(admission(other(1), "s")) // another one's
	for i := range submissions {
		a := admission(addr, fmt.Sprintf("s%04d", i))
		if i%100 == 0 {
			a.Attachments = []store.Attachment{attachment(fmt.Sprintf("a%04d", i), "data"), attachment(fmt.Sprintf("b%04d", i), fmt.Sprint("data ", i))}
			want.attachments = append(want.attachments, a.Attachments...)
		}
		r := k.admit(a)
		want.submissions = append(want.submissions, store.Accepted{
			Submission: store.Submission{ID: a.Submission, Offset: r.Offset, AcceptedAt: accepted}, Identity: a.Identity,
		})
	}
	l := k.take("n1", addr)
	last := k.append(l, "end", store.Settlement{Submission: "s0007", Outcome: "completed"})
	want.submissions[7].Outcome, want.submissions[7].SettledAt = "completed", last
	k.append(l, "piece")
	k.append(l, "piece")
	k.append(l, "more")
	if p, ok := k.Store.(store.Pruner); ok {
		if err := p.Prune(k.Context(), l, []store.Run{{From: last + 1, To: last + 2, Payload: []byte("pieces")}}); err != nil {
			k.Fatal(err)
		}
	}
	want.Instance, want.batches = k.instance(addr), k.journal(addr)
	slices.SortFunc(want.attachments, func(a, b store.Attachment) int { return strings.Compare(a.ID, b.ID) })

	got := &recorder{}
	lost, err := store.Copy(k.Context(), e, got, addr)
	if err != nil || len(lost.LostBatches)+len(lost.LostAttachments) > 0 {
		k.Errorf("Copy lost %+v, %v", lost, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(recorder{})); diff != "" {
		k.Errorf("the copy (-want +got):\n%s", diff)
	}
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 5: 5, 100: 99} {
		list, err := e.Accepted(k.Context(), addr, "s1000", limit)
		if err != nil || len(list) != want || want > 0 && list[0].ID != "s1001" {
			k.Errorf("Accepted with limit %d: %d, %v, want %d", limit, len(list), err, want)
		}
		ids, err := e.AttachmentIDs(k.Context(), addr, "b0995", min(limit, 2))
		if n := max(min(want, 2, 1), 0); err != nil || len(ids) != n || n > 0 && ids[0] != "b1000" {
			k.Errorf("AttachmentIDs with limit %d: %v, %v, want %d", limit, ids, err, n)
		}
	}
}

func (k *kit) importer() store.Importer {
	k.Helper()
	i, ok := k.Store.(store.Importer)
	if !ok {
		k.Skip("nothing can be copied to the store: it is no store.Importer")
	}
	return i
}

// foreign is an instance as another store had it, with epochs of its own.
func foreign() *recorder {
	r := &recorder{Instance: store.Instance{Address: addr, UID: "uid", Incarnation: "inc", Head: 2504, Unsettled: 2}}
	for i := range int64(2500) {
		r.batches = append(r.batches, store.Batch{Offset: i, Epoch: i % 3 << 40, Payload: fmt.Append(nil, "batch ", i)})
	}
	r.batches = append(r.batches, store.Batch{Offset: 2500, Epoch: 5 << 40, Payload: []byte("merged"), Span: 3}, store.Batch{Offset: 2504, Payload: []byte{}})
	for i := range int64(1200) {
		a := store.Accepted{Identity: fmt.Append(nil, "identity ", i)}
		a.ID, a.Offset, a.AcceptedAt, a.Outcome, a.SettledAt = fmt.Sprintf("s%04d", i), i+1, accepted, "completed", i+2
		if i >= 1198 {
			a.Outcome, a.SettledAt = "", 0
		}
		r.submissions = append(r.submissions, a)
	}
	r.attachments = []store.Attachment{attachment("a1", "data"), attachment("a2", "data"), attachment("a3", ""), attachment("a4", "other")}
	return r
}

func checkImport(k *kit) {
	i, want := k.importer(), foreign()
	if err := i.Import(k.Context(), want.given()); err != nil {
		k.Fatal(err)
	}
	equal(k, "instance", k.instance(addr), want.Instance)
	if diff := cmp.Diff(want.batches, k.journal(addr)); diff != "" {
		k.Errorf("journal (-want +got):\n%s", diff)
	}
	for _, a := range want.submissions {
		if got := k.submission(addr, a.ID); got != a.Submission {
			k.Errorf("submission %+v, want %+v", got, a.Submission)
		}
	}
	for _, a := range want.attachments {
		got, err := k.Attachment(k.Context(), addr, a.ID)
		if err != nil || string(got.Data) != string(a.Data) || got.MediaType != a.MediaType || got.Filename != a.Filename || got.Digest != a.Digest {
			k.Errorf("attachment %+v, %v, want %+v", got, err, a)
		}
	}
	if l, ok := k.Store.(store.Lister); ok {
		open, err := l.Unsettled(k.Context(), addr)
		if err != nil || len(open) != 2 || open[0].ID != "s1198" || open[1].ID != "s1199" {
			k.Errorf("Unsettled: %v, %v", open, err)
		}
	}
}

func checkImportGoesOn(k *kit) {
	i, given := k.importer(), foreign()
	if err := i.Import(k.Context(), given.given()); err != nil {
		k.Fatal(err)
	}
	again := admission(addr, "s0003")
	again.Identity = []byte("identity 3")
	if r := k.admit(again); !r.Duplicate || r.Offset != 4 || r.UID != "uid" {
		k.Errorf("an old submission: %+v", r)
	}
	again.Identity = []byte("other")
	_, err := k.Admit(k.Context(), again)
	k.refused("an old submission with another content", err, store.ErrConflict)
	k.renew("n1")
	ls := k.claim("n1", 10)
	if len(ls) != 1 || ls[0].Address != addr || ls[0].Epoch <= 5<<40 {
		k.Fatalf("a claim gave %v", ls)
	}
	if offset := k.append(ls[0], "on", store.Settlement{Submission: "s1198", Outcome: "completed"}, store.Settlement{Submission: "s1199", Outcome: "failed"}); offset != 2505 {
		k.Errorf("the next batch is at %d", offset)
	}
	equal(k, "unsettled", k.instance(addr).Unsettled, 0)
	if r := k.admit(admission(addr, "new")); r.Offset != 2506 || r.Created {
		k.Errorf("a new submission: %+v", r)
	}
}

func checkImportRefused(k *kit) {
	i := k.importer()
	broken := errors.New("broken on purpose")
	for name, tt := range map[string]struct {
		change func(r *recorder, in *store.Import)
		want   error
	}{
		"a gap":                     {func(r *recorder, in *store.Import) { in.Batches = handed(slices.Delete(r.batches, 5, 6)) }, store.ErrInvalid},
		"no birth":                  {func(r *recorder, in *store.Import) { in.Batches = handed(r.batches[1:]) }, store.ErrInvalid},
		"nothing":                   {func(_ *recorder, in *store.Import) { in.Batches = handed[store.Batch](nil) }, store.ErrInvalid},
		"an end that is missing":    {func(r *recorder, in *store.Import) { in.Batches = handed(r.batches[:2000]) }, store.ErrInvalid},
		"a batch behind the head":   {func(_ *recorder, in *store.Import) { in.Head = 2503 }, store.ErrInvalid},
		"a negative span":           {func(r *recorder, _ *store.Import) { r.batches[2500].Span = -1 }, store.ErrInvalid},
		"too many open submissions": {func(_ *recorder, in *store.Import) { in.Unsettled = 1 }, store.ErrInvalid},
		"too few open submissions":  {func(_ *recorder, in *store.Import) { in.Unsettled = 3 }, store.ErrInvalid},
		"a submission nowhere":      {func(r *recorder, _ *store.Import) { r.submissions[7].Offset = 9999 }, store.ErrInvalid},
		"a submission without name": {func(r *recorder, _ *store.Import) { r.submissions[7].ID = "" }, store.ErrInvalid},
		"a wrong digest":            {func(r *recorder, _ *store.Import) { r.attachments[3].Data = []byte("wrong") }, store.ErrInvalid},
		"no uid":                    {func(_ *recorder, in *store.Import) { in.UID = "" }, store.ErrInvalid},
		"no address":                {func(_ *recorder, in *store.Import) { in.ID = "" }, store.ErrInvalid},
		"an error of the batches":   {func(_ *recorder, in *store.Import) { in.Batches = failing(in.Batches, 2300, broken) }, broken},
		"an error of submissions":   {func(_ *recorder, in *store.Import) { in.Submissions = failing(in.Submissions, 1100, broken) }, broken},
		"an error of attachments":   {func(_ *recorder, in *store.Import) { in.Attachments = failing(in.Attachments, 2, broken) }, broken},
	} {
		r := foreign()
		in := r.given()
		tt.change(r, &in)
		k.refused(name, i.Import(k.Context(), in), tt.want)
		if _, err := k.Instance(k.Context(), addr); !errors.Is(err, store.ErrNotFound) {
			k.Errorf("%s: the instance is there: %v", name, err)
		}
	}
	// What is there stays as it is.
	k.admit(admission(addr, "s1"))
	k.unchanged("an import of what exists", addr, []string{"s1"}, func() {
		k.condition("Import", i.Import(k.Context(), foreign().given()), &store.ConditionError{Address: addr, Exists: true, UID: "uid-s1"})
	})
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	in := foreign().given()
	in.ID = "cancelled"
	if err := i.Import(ctx, in); !errors.Is(err, context.Canceled) {
		k.Errorf("Import with a context that has ended: %v", err)
	}
}

// failing ends a sequence with an error.
func failing[T any](from iter.Seq2[T, error], after int, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		n := 0
		for v, e := range from {
			if n++; n > after {
				var none T
				yield(none, err)
				return
			}
			if !yield(v, e) {
				return
			}
		}
	}
}
