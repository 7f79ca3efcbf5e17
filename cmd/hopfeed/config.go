package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

const maxConfigBytes = 1 << 20

// applyConfig sets the flags of c that the command line has not set from a JSON
// file whose keys are names of flags. No path is no file.
func (a *app) applyConfig(c *cobra.Command, path string) error {
	if path == "" {
		return nil
	}
	f, err := a.fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	text := make([]byte, maxConfigBytes)
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(text[:n], &config); err != nil {
		return usagef("--config %s: %s", path, err)
	}
	given := map[string]bool{}
	for name := range config {
		given[name] = c.Flags().Changed(name)
	}
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if name == "config" || c.Flags().Lookup(name) == nil {
			return usagef("--config %s: the command has no flag %q", path, name)
		}
		if given[name] {
			continue
		}
		// Numbers as they are written: a seed has more digits than a float64.
		value := string(config[name])
		if config[name][0] == '"' {
			if err := json.Unmarshal(config[name], &value); err != nil {
				return usagef("--config %s: %s: %s", path, name, err)
			}
		}
		if err := c.Flags().Set(name, value); err != nil {
			return usagef("--config %s: %s", path, err)
		}
	}
	if err := a.useThreads(); err != nil {
		return err
	}
	return a.useMemory()
}
