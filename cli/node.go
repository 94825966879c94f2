package cli

import (
	"crypto/rand"
	"os"
	"strings"
)

// nodeName names this process among those that share the store: by its machine, for
// a person who looks, and by something that no other process has. Two of one name
// would take each other's conversations for their own.
func nodeName() string {
	host, err := os.Hostname()
	if host = strings.ToValidUTF8(host[:min(len(host), 200)], ""); err != nil || host == "" {
		host = "process"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}
