package storetest

import (
	"github.com/flue-go/flue/store"
)

// listChecks are for stores that implement store.Lister; others skip them.
var listChecks = []check{
	{
		name: "Instances",
		rule: "Instances lists what there is by agent and id, byte by byte, from where the caller left off.",
		run:  checkInstances,
	},
	{
		name: "Unsettled",
		rule: "Unsettled lists the submissions that are not settled, in the order of their admission.",
		run:  checkUnsettled,
	},
}

// lister returns the store as a Lister, or skips the check.
func (k *kit) lister() store.Lister {
	k.Helper()
	l, ok := k.Store.(store.Lister)
	if !ok {
		k.Skip("the store is no store.Lister")
	}
	return l
}

func checkInstances(k *kit) {
	l := k.lister()
	list := func(after store.Address, limit int) []store.Address {
		k.Helper()
		rows, err := l.Instances(k.Context(), after, limit)
		if err != nil {
			k.Fatalf("Instances after %v: %v", after, err)
		}
		var addrs []store.Address
		for _, in := range rows {
			equal(k, "the row of "+in.Address.String(), in, k.instance(in.Address))
			addrs = append(addrs, in.Address)
		}
		return addrs
	}
	equal(k, "instances of an empty store", list(store.Address{}, 10), nil)

	ordered := []store.Address{
		{Agent: "A", ID: "z"},
		{Agent: "a", ID: "1"},
		{Agent: "a", ID: "10"},
		{Agent: "a", ID: "2"},
		{Agent: "a", ID: "\xc3\xa4"},
		{Agent: "a-b", ID: "0"},
		{Agent: "b", ID: "1"},
	}
	for _, i := range []int{3, 0, 6, 2, 5, 1, 4} {
		k.admit(admission(ordered[i], "s1"))
	}
	k.append(k.take("n1", ordered[2]), "end", store.Settlement{Submission: "s1", Outcome: "completed"})
	equal(k, "all", list(store.Address{}, 100), ordered)
	equal(k, "none", list(store.Address{}, 0), nil)
	equal(k, "less than none", list(store.Address{}, -1), nil)
	equal(k, "those of an agent", list(store.Address{Agent: "a"}, 2), ordered[1:3])
	equal(k, "after one that is not there", list(store.Address{Agent: "a", ID: "11"}, 100), ordered[3:])
	equal(k, "after the last", list(ordered[6], 100), nil)
	var paged []store.Address
	for after := (store.Address{}); ; after = paged[len(paged)-1] {
		page := list(after, 3)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	equal(k, "page by page", paged, ordered)
}

func checkUnsettled(k *kit) {
	l := k.lister()
	open := func() []string {
		k.Helper()
		subs, err := l.Unsettled(k.Context(), addr)
		if err != nil {
			k.Fatalf("Unsettled: %v", err)
		}
		var ids []string
		for _, sub := range subs {
			equal(k, "submission "+sub.ID, sub, k.submission(addr, sub.ID))
			ids = append(ids, sub.ID)
		}
		return ids
	}
	_, err := l.Unsettled(k.Context(), addr)
	k.refused("Unsettled of a missing instance", err, store.ErrNotFound)

	lease := k.owned(addr, "n1")
	for _, id := range []string{"z", "a", "m"} {
		k.admit(admission(addr, id))
	}
	k.admit(admission(other(1), "elsewhere"))
	equal(k, "after admission", open(), []string{"s1", "z", "a", "m"})
	k.append(lease, "end", store.Settlement{Submission: "z", Outcome: "failed"}, store.Settlement{Submission: "s1", Outcome: "completed"})
	equal(k, "after some have settled", open(), []string{"a", "m"})
	k.append(lease, "end", store.Settlement{Submission: "a", Outcome: "aborted"}, store.Settlement{Submission: "m", Outcome: "completed"})
	equal(k, "after all have settled", open(), nil)
}
