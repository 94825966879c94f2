package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// defaultEnvFile is read if it is there and no other file is named.
const defaultEnvFile = ".env"

// loadEnv puts the variables of an env file into the environment of the
// process, where the program's own code finds them too. What the environment
// already has wins, even if it is empty. A file that was named must be there.
func loadEnv(path string, named bool) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the env file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxDotenv+1))
	if err != nil {
		return fmt.Errorf("reading the env file: %w", err)
	}
	vars, err := parseDotenv(string(text))
	if err != nil {
		return fmt.Errorf("reading the env file %s: %w", path, err)
	}
	for _, v := range vars {
		if _, ok := os.LookupEnv(v.name); ok {
			continue
		}
		if err := os.Setenv(v.name, v.value); err != nil {
			return fmt.Errorf("env file %s: line %d: setting %s: %w", path, v.line, v.name, err)
		}
	}
	return nil
}
