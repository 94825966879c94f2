package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/flue-go/flue/store"
	"github.com/flue-go/flue/store/sqlite"
)

// One submission, from its admission to its settlement.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "flue")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := sqlite.Open(ctx, filepath.Join(dir, "flue.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	// Anybody may admit.
	clerk := store.Address{Agent: "clerk", ID: "order-7"}
	receipt, err := s.Admit(ctx, &store.Admission{
		Address:    clerk,
		Submission: "sub-1",
		AcceptedAt: time.Now(),
		Payload:    []byte("where is my order?"),
		Birth:      &store.Birth{UID: "u-1", Payload: []byte("born")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("admitted at", receipt.Offset)

	// One node at a time works.
	if err := s.Renew(ctx, "node-1", 10*time.Second); err != nil {
		log.Fatal(err)
	}
	leases, err := s.Claim(ctx, "node-1", 10)
	if err != nil {
		log.Fatal(err)
	}
	offset, err := s.Append(ctx, leases[0], store.Write{
		Payload: []byte("on its way"),
		Settle:  []store.Settlement{{Submission: "sub-1", Outcome: "completed"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("settled at", offset)

	page, err := s.Read(ctx, clerk, -1, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range page.Batches {
		fmt.Printf("%d %s\n", b.Offset, b.Payload)
	}
	// Output:
	// admitted at 1
	// settled at 2
	// 0 born
	// 1 where is my order?
	// 2 on its way
}

func ExampleStore_Backup() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "flue")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := sqlite.Open(ctx, filepath.Join(dir, "flue.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := s.Backup(ctx, filepath.Join(dir, "copy.db")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
	// Output: done
}
