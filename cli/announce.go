package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/flue-go/flue"
)

// announce says on standard output what is served, and how to try it.
func (s *server) announce(addr net.Addr) {
	base := "http://" + reachable(addr)
	var b strings.Builder
	fmt.Fprintf(&b, "%s listens on %s\n", s.app.Name, base)
	for _, a := range s.app.Agents {
		fmt.Fprintf(&b, "  %s/agents/%s/{conversation}\n", base, a.Name)
	}
	url := base + "/agents/" + s.app.Agents[0].Name + "/demo"
	fmt.Fprintf(&b, "\nSend a message, then read the conversation:\n")
	fmt.Fprintf(&b, "  curl %s -H 'Content-Type: application/json' -d '%s'\n", url, prompt(s.app.Example))
	fmt.Fprintf(&b, "  curl %s\n", url)
	if _, err := s.out.Write([]byte(b.String())); err != nil {
		s.log.Warn("writing to standard output", "error", err)
	}
}

// prompt is the body of a request that sends a message, for single quotes of a
// shell.
func prompt(message string) string {
	body, err := json.Marshal(map[string]string{"kind": "user", "body": message})
	if err != nil { // strings always encode
		panic(err)
	}
	return strings.ReplaceAll(string(body), "'", `'\''`)
}

// reachable is an address that this machine can reach the listener under.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("localhost:%d", tcp.Port)
	}
	return addr.String()
}

// warn logs what an operator should know before there is a first request.
func (s *server) warn(rt *flue.Runtime, m *models, addr net.Addr) {
	if !loopback(addr) && s.app.Middleware == nil {
		s.log.Warn("whoever can reach this address can use the agents: the program has no authentication", "address", addr.String())
	}
	for _, a := range s.app.Agents {
		used, err := rt.Preflight(a.Name)
		if err != nil {
			s.log.Error("the agent cannot answer", "agent", a.Name, "error", err)
			continue
		}
		for _, specifier := range used {
			if variable, ok := m.scripted(specifier); ok {
				s.log.Warn("a scripted demo model answers in place of the real one; set the variable to use that",
					"agent", a.Name, "model", specifier, "variable", variable)
			}
		}
	}
}
