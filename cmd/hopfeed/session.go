package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/gds"
	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/trainer"
)

// sessionOptions are what train and evaluate have in common.
type sessionOptions struct {
	batch     int
	train     bool // and not only evaluate
	placement string
	shuffle   string   // "": the rows are read in order
	regions   []string // that are read; nil: all
	scattered bool     // only some rows of them: see placement.Needs
	cutChunks bool     // see placement.Needs
}

// session is a device, and a store on its way to it.
type session struct {
	store    *format.Dir
	device   gds.Device
	loader   *loader.Loader
	batch    int
	decision placement.Decision
}

// openStore opens a hop store, and says what to do with a graph.
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

// openSession places what spec reads of store, and opens a loader for it. The
// store belongs to the session, whatever becomes of it.
func (a *app) openSession(ctx context.Context, store *format.Dir, spec trainer.Spec, o sessionOptions) (_ *session, err error) {
	s := &session{store: store}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	rows := int64(0)
	for _, r := range store.Layout().Regions {
		if o.regions == nil || slices.Contains(o.regions, r.Name) {
			rows += r.Rows
		}
	}
	s.batch = int(min(int64(o.batch), max(rows, 1)))
	budget, by := a.budget()
	if s.device, err = host.New(host.Options{MemoryBytes: int64(budget), Threads: a.threads}); err != nil {
		return nil, err
	}
	lo := loader.Options{
		Device: s.device, Store: store, Matrices: spec.Matrices, Regions: o.regions,
		BatchRows: s.batch, Threads: a.threads,
	}
	need, err := loader.Need(lo)
	if err != nil {
		return nil, err
	}
	model, err := spec.DeviceBytes(s.batch, o.train)
	if err != nil {
		return nil, err
	}
	info := s.device.Info()
	layout := store.Layout()
	needs := placement.Needs{
		Input:         units.Bytes(int64(len(spec.Matrices)) * rows * int64(layout.Features*layout.DType.Size())),
		Work:          units.Bytes(need.Batches + model),
		Chunks:        units.Bytes(need.Chunks),
		ScatteredRows: o.scattered,
		CutChunks:     o.cutChunks,
	}
	free := units.Bytes(math.MaxInt64) // of a device without a limit of its own
	if info.MemoryBytes > 0 {
		free = units.Bytes(info.MemoryBytes - s.device.Usage().InUse)
	}
	facts := placement.Facts{Device: info, DeviceFree: free, Budget: budget, BudgetBy: by}
	if s.decision, err = placement.Choose(facts, needs, placement.Override{Placement: o.placement, Shuffle: o.shuffle}); err != nil {
		return nil, err
	}
	lo.Placement = loader.Placement(s.decision.Placement)
	s.loader, err = loader.Open(ctx, lo)
	return s, err
}

func (s *session) close() error {
	var errs []error
	if s.loader != nil {
		errs = append(errs, s.loader.Close())
	}
	if s.device != nil {
		errs = append(errs, s.device.Close())
	}
	return errors.Join(append(errs, s.store.Close())...)
}

// announce says where the bytes will come from, and why.
func (s *session) announce(a *app) {
	a.note("input from %s%s", s.decision.Placement, shuffleText(s.decision.Shuffle))
	for _, reason := range s.decision.Reasons {
		a.note("  %s", reason)
	}
}

// readsText says how much was read from storage, and by which paths.
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

// percent prints a metric, or that there is none.
func percent(p *float64) string {
	if p == nil || math.IsNaN(*p) {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100**p)
}

// oneOf checks the value of a flag that has a few.
func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return usagef("--%s %q: want one of %v", flag, value, allowed)
}
