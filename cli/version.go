package cli

import "runtime/debug"

// version returns what the App says, or else what the build recorded.
func version(own string) string {
	if own != "" {
		return own
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v + " (" + info.GoVersion + ")"
}
