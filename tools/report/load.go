package report

import (
	"fmt"
	"path/filepath"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop"
	"github.com/hopfeed/hopfeed/tools/checkpoint"
	"github.com/hopfeed/hopfeed/tools/tune"
)

// Load reads the trainings in some folders. seconds is how long propagations took, by the resolved folder of the
// store; otherwise the store says it.
func Load(fsys vfs.FS, dirs []string, seconds map[string]float64) (runs []Run, err error) {
	for _, dir := range dirs {
		r := Run{Name: filepath.Base(filepath.Clean(dir))}
		if len(dirs) > 1 {
			r.Name = filepath.Clean(dir)
		}
		if r.Checkpoint, err = checkpoint.LoadRun(fsys, dir); err != nil {
			return nil, err
		}
		text, err := checkpoint.ReadTrials(fsys, dir)
		if err != nil {
			return nil, err
		}
		if r.Trials, err = tune.Decode(text); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", filepath.Join(dir, checkpoint.TrialsFile), checkpoint.ErrInvalid, err)
		}
		if store := r.Config["store"]; store != "" {
			if store, err := fsys.Resolve(store); err == nil { // a store that is gone has no seconds
				if r.Propagation.Seconds = seconds[store]; r.Propagation.Seconds == 0 {
					r.Propagation = propagationOf(fsys, store, r.Data.Fingerprint)
				}
			}
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// propagationOf is how long it took to make the store that a training has read, if that is still there.
func propagationOf(fsys vfs.FS, store, fingerprint string) (t preprop.Took) {
	d, err := format.OpenAny(fsys, store)
	if err != nil {
		return t
	}
	defer d.Close()
	if d.Manifest.Kind != format.KindStore || d.Manifest.Fingerprint != fingerprint {
		return t
	}
	return preprop.TookOf(fsys, store)
}
