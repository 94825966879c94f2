//go:build !unix

package storetest

import "time"

// processorTime is what this process has used so far, here unknown.
func processorTime() time.Duration { return -1 }
