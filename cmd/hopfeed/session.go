package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// sessionOptions say which rows of a store are read, and how.
type sessionOptions struct {
	batch     int
	train     bool // else the model is only evaluated
	placement string
	shuffle   string   // "": rows are read in order
	regions   []string // that are read; nil: all
	scattered bool     // only some rows of them: see placement.Needs
	chunkRows int      // that are shuffled together by chunk; 0: a chunk of the store

	held int64 // bytes of memory that the command has beside

	trainRows, validRows int64 // of an epoch
}

// planChunkRows is the number of rows that stay together when chunks are reshuffled; stored is
// the number of rows of a chunk of the store.
func (o sessionOptions) planChunkRows(stored int) int {
	if o.chunkRows > 0 {
		return o.chunkRows
	}
	return stored
}

// session is a store that is open for training or evaluation, with devices and their loaders.
type session struct {
	store     *format.Dir
	devices   []gds.Device
	loaders   loader.Ranks // one for each
	batch     int          // over all devices
	chunkRows int          // that are shuffled together by chunk
	decision  placement.Decision
}

// openStore opens a hop store. For a graph, the error says how to make a store of it.
func (a *app) openStore(dir, model string) (*format.Dir, error) {
	d, err := format.OpenAny(a.fs, dir)
	if err != nil {
		return nil, err
	}
	if d.Manifest.Kind == format.KindGraph {
		d.Close()
		return nil, usagef("%s is a graph, and %s reads a hop store: run hopfeed propagate %s -o STORE first "+
			"(message-passing models, which read graphs, are not in this version)", dir, model, dir)
	}
	return d, nil
}

// openSession chooses a placement for the matrices that spec reads, and opens devices and
// loaders. It closes the store if it fails; else session.close does.
func (a *app) openSession(ctx context.Context, store *format.Dir, spec trainer.Spec, o sessionOptions) (_ *session, err error) {
	s := &session{store: store}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	layout := store.Layout()
	lo := o.loaderOptions(layout, spec)
	lo.Store, lo.Threads = store, a.threads
	s.batch, s.chunkRows = lo.BatchRows, o.planChunkRows(layout.ChunkRows)
	var v placementInputs
	if v.facts, err = a.machineFacts(); err != nil {
		return nil, err
	}
	if v.needs, err = o.needs(layout, spec, v.facts.Devices); err != nil {
		return nil, err
	}
	v.needs.Host += indexBytes(store)
	asked := placement.Override{Placement: o.placement, Shuffle: o.shuffle}
	if s.decision, err = placement.Choose(v.facts, v.needs, asked); err != nil {
		return nil, err
	}
	if o.train && v.needs.Input >= minMeasuredInput {
		if err := v.measure(ctx, a, store, spec, o, s.decision.Devices); err != nil {
			return nil, err
		}
		if s.decision, err = placement.Choose(v.facts, v.needs, asked); err != nil {
			return nil, err
		}
	}
	if s.devices, err = a.openDevices(s.decision.Devices); err != nil {
		return nil, err
	}
	lo.Placement, lo.Sharded = loader.Placement(s.decision.Placement), s.decision.Sharded
	s.loaders, err = loader.OpenRanks(ctx, lo, s.devices)
	return s, err
}

func (s *session) close() error {
	return errors.Join(s.loaders.Close(), closeDevices(s.devices), s.store.Close())
}

// shareRows is the largest number of rows of a batch that one device gets.
func shareRows(batch, devices int) int { return (batch-1)/devices + 1 }

// peak is the largest peak memory of the devices, in bytes.
func (s *session) peak() (bytes int64) {
	for _, d := range s.devices {
		bytes = max(bytes, d.Usage().Peak)
	}
	return bytes
}

// notePlacement prints where the input is read from, and why.
func (s *session) notePlacement(a *app) {
	a.note("input from %s%s", s.decision.Placement, shuffleText(s.decision.Shuffle))
	for _, reason := range s.decision.Reasons {
		a.note("  %s", reason)
	}
	var pinned, locked units.Bytes
	notLocked := ""
	for _, d := range s.devices {
		if u := d.Usage(); !d.Info().Unified {
			pinned, locked = pinned+units.Bytes(u.PinnedInUse), locked+units.Bytes(u.PinnedLocked)
			notLocked = cmp.Or(notLocked, u.NotLocked)
		}
	}
	if notLocked != "" {
		a.note("  only %[2]s of %[1]s of pinned memory is locked: %[3]s", pinned, locked, notLocked)
	}
	if s.decision.ComputeSeconds > 0 {
		a.note("  an epoch should take %.3g s", s.decision.EpochSeconds)
	}
}

// readsText says how many bytes were read from storage, and by which paths.
func readsText(stats loader.Stats) string {
	var parts []string
	for _, r := range stats.Reads {
		part := fmt.Sprintf("%s by %s reads", units.Bytes(r.Bytes), r.Path)
		if r.Reason != "" {
			part += " (" + r.Reason + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "nothing read"
	}
	return strings.Join(parts, ", ")
}

// percent prints a metric, "-" for none.
func percent(p *float64) string {
	if p == nil || math.IsNaN(*p) {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100**p)
}

// oneOf returns an error unless the value of a flag is one of those allowed.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return usagef("--%s %q: want one of %v", flag, value, allowed)
}
