package storetest

import (
	"fmt"

	"github.com/flue-go/flue/store"
)

var attachmentChecks = []check{
	{
		name: "Attachments",
		rule: "An attachment reads back as it was admitted, from its own instance and no other, and is there as soon as its submission is.",
		run:  checkAttachments,
	},
	{
		name: "AttachmentIDs",
		rule: "An attachment id stands for the same bytes for ever: other bytes under it are refused with ErrConflict, the same bytes are not.",
		run:  checkAttachmentIDs,
	},
	{
		name: "OwnerAttachments",
		rule: "An owner's batch may bring attachments, which are there when the batch is; a refused append leaves none.",
		run:  checkOwnerAttachments,
	},
	{
		name: "LargeAttachment",
		rule: "An attachment of several megabytes is kept byte for byte.",
		run:  checkLargeAttachment,
	},
}

func checkAttachments(k *kit) {
	a := admission(addr, "s1")
	a.Attachments = []store.Attachment{
		attachment("one", "same bytes"),
		attachment("two", "same bytes"),
		attachment("three", "other bytes"),
		attachment("empty", ""),
	}
	a.Attachments[1].MediaType, a.Attachments[1].Filename = "image/png", ""
	k.admit(a)
	k.admit(admission(other(1), "s1"))
	for _, want := range a.Attachments {
		got, err := k.Attachment(k.Context(), addr, want.ID)
		if err != nil {
			k.Errorf("Attachment %s: %v", want.ID, err)
			continue
		}
		equal(k, "data of "+want.ID, string(got.Data), string(want.Data))
		got.Data = want.Data // nil and empty are the same
		equal(k, "attachment "+want.ID, got, want)

		_, err = k.Attachment(k.Context(), other(1), want.ID)
		k.refused("attachment "+want.ID+" of another instance", err, store.ErrNotFound)
	}
	_, err := k.Attachment(k.Context(), addr, "four")
	k.refused("an unknown attachment", err, store.ErrNotFound)
	_, err = k.Attachment(k.Context(), other(2), "one")
	k.refused("an attachment of a missing instance", err, store.ErrNotFound)
}

func checkAttachmentIDs(k *kit) {
	send := func(to store.Address, id string, as ...store.Attachment) error {
		a := admission(to, id)
		a.Attachments = as
		_, err := k.Admit(k.Context(), a)
		return err
	}
	if err := send(addr, "s1", attachment("one", "first")); err != nil {
		k.Fatal(err)
	}
	if err := send(addr, "s2", attachment("one", "first"), attachment("two", "second")); err != nil {
		k.Errorf("the same attachment again: %v", err)
	}
	if err := send(other(1), "s1", attachment("one", "another")); err != nil {
		k.Errorf("the same id in another instance: %v", err)
	}
	k.unchanged("conflict", addr, []string{"s1", "s2", "s3"}, func() {
		k.refused("other bytes under a known id",
			send(addr, "s3", attachment("new", "new"), attachment("two", "different")), store.ErrConflict)
		k.refused("two contents under one id in one admission",
			send(addr, "s3", attachment("new", "new"), attachment("new", "different")), store.ErrConflict)
	})
	k.refused("two contents under one id in a first admission",
		send(other(2), "s1", attachment("new", "new"), attachment("new", "different")), store.ErrConflict)
	_, err := k.Instance(k.Context(), other(2))
	k.refused("instance of the refused admission", err, store.ErrNotFound)
	_, err = k.Attachment(k.Context(), addr, "new")
	k.refused("attachment of a refused admission", err, store.ErrNotFound)
	for id, want := range map[string]string{"one": "first", "two": "second"} {
		got, err := k.Attachment(k.Context(), addr, id)
		if err != nil || string(got.Data) != want {
			k.Errorf("Attachment %s = %q, %v, want %q", id, got.Data, err, want)
		}
	}
}

func checkOwnerAttachments(k *kit) {
	a := admission(addr, "s1")
	a.Attachments = []store.Attachment{attachment("admitted", "by a sender")}
	k.admit(a)
	k.renew("n1")
	l := k.take("n1", addr)
	write := func(l store.Lease, settle string, as ...store.Attachment) error {
		w := store.Write{Payload: []byte("work"), Attachments: as}
		if settle != "" {
			w.Settle = []store.Settlement{{Submission: settle, Outcome: "completed"}}
		}
		_, err := k.Append(k.Context(), l, w)
		return err
	}
	if err := write(l, "", attachment("one", "first"), attachment("two", ""), attachment("admitted", "by a sender")); err != nil {
		k.Fatal(err)
	}
	for id, want := range map[string]string{"one": "first", "two": "", "admitted": "by a sender"} {
		got, err := k.Attachment(k.Context(), addr, id)
		if err != nil || string(got.Data) != want {
			k.Errorf("Attachment %s = %q, %v, want %q", id, got.Data, err, want)
		}
	}
	stale := l
	l = k.take("n1", addr)
	k.unchanged("a refused append", addr, []string{"s1"}, func() {
		k.refused("an old owner's", write(stale, "", attachment("new", "new")), store.ErrFenced)
		k.refused("one that settles what is not there", write(l, "s9", attachment("new", "new")), store.ErrSettled)
		k.refused("other bytes under a known id", write(l, "s1", attachment("new", "new"), attachment("one", "different")), store.ErrConflict)
		k.refused("other bytes under an id of a sender", write(l, "", attachment("admitted", "different")), store.ErrConflict)
		bad := attachment("new", "new")
		bad.Digest[0]++
		k.refused("a wrong digest", write(l, "", bad), store.ErrInvalid)
		k.refused("too many", write(l, "", make([]store.Attachment, store.MaxAttachments+1)...), store.ErrTooLarge)
	})
	_, err := k.Attachment(k.Context(), addr, "new")
	k.refused("an attachment of a refused append", err, store.ErrNotFound)
}

func checkLargeAttachment(k *kit) {
	data := make([]byte, 5<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	for i := range 3 {
		a := admission(addr, fmt.Sprint("s", i))
		a.Attachments = []store.Attachment{attachment(fmt.Sprint("file ", i), string(data[i:]))}
		k.admit(a)
	}
	for i := range 3 {
		got, err := k.Attachment(k.Context(), addr, fmt.Sprint("file ", i))
		if err != nil || string(got.Data) != string(data[i:]) {
			k.Errorf("attachment %d: %d bytes that differ, %v", i, len(got.Data), err)
		}
	}
}
