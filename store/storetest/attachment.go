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
