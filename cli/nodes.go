package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/flue-go/flue/store"
)

// A listedNode is a line of the list of nodes.
type listedNode struct {
	Name    string `json:"name"`
	Live    bool   `json:"live"`
	LeftMS  int64  `json:"leaseLeftMs"` // negative since the lease has lapsed
	Owned   int    `json:"owned"`
	Working int    `json:"working"`
}

// nodes lists the processes that share the store.
func (in *inspection) nodes(ctx context.Context) error {
	st, ok := in.st.(store.Surveyor)
	if !ok {
		return errors.New("a file of SQLite is one process's at a time, and keeps no list of nodes: inspect work shows what waits")
	}
	nodes, err := st.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	table := tabwriter.NewWriter(in.to, 0, 0, 2, ' ', 0)
	if !in.json {
		fmt.Fprintln(table, "NODE\tLEASE\tOWNED\tWORKING")
	}
	for _, n := range nodes {
		if in.json {
			err = in.encode(listedNode{Name: n.Name, Live: n.Left > 0, LeftMS: n.Left.Milliseconds(), Owned: n.Owned, Working: n.Working})
		} else {
			_, err = fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", line(n.Name), lease(n.Left), n.Owned, n.Working)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// lease says how long a lease lasts, or since when it does not.
func lease(left time.Duration) string {
	if left <= 0 {
		return "lapsed " + rough(-left) + " ago"
	}
	return left.Round(100 * time.Millisecond).String()
}
