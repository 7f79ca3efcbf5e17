package preprop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/plan"
	"github.com/hopfeed/hopfeed/preprop/product"
)

// hopsJob makes the hops of a graph of one type, or what a step of a typed graph makes, in one engine.Job.
type hopsJob struct {
	*jobContext
	job *engine.Job // once it is planned
}

func (h *hopsJob) context() *jobContext { return h.jobContext }

func (h *hopsJob) newResult() *Result { return h.jobContext.newResult(&h.graph.Manifest) }

func (h *hopsJob) findRows(ctx context.Context) error {
	if h.existing != nil {
		return h.loadNodes(ctx)
	}
	if err := h.chooseRows(ctx); err != nil {
		return err
	}
	h.setAsked()
	return nil
}

func (h *hopsJob) plan(ctx context.Context, _ *Result) (p *Plan, err error) {
	if h.job, err = h.newJob(); err != nil {
		return nil, err
	}
	h.job.Plan, err = h.planJob(ctx, h.job)
	h.job.Account.Planning = time.Since(h.start).Seconds()
	return h.job.Plan, err
}

// make makes the store, from an earlier one where that is worth its while.
func (h *hopsJob) make(ctx context.Context, store *format.Writer, r *Result) (err error) {
	j := h.job
	defer func() {
		if j.Given != nil { // the job ended before it took it
			err = errors.Join(err, j.Given.Close())
		}
		err = h.explain(ctx, err)
	}()
	if err := h.loadLabels(ctx); err != nil {
		return err
	}
	if h.earlier == nil {
		h.options.Planned(j.Plan)
	}
	if h.table != nil {
		if err := store.Rows(h.table); err != nil {
			return err
		}
		h.table = nil
		if plan.PickedBytes(&h.graph.Manifest, int64(len(h.nodes))) > plan.NoticeableBytes {
			debug.FreeOSMemory() // the plan does not count the table any more
		}
	}
	if h.scratch, err = h.scratchFolder(store); err != nil {
		return err
	}
	if r.Resumed, err = h.begin(store, h.scratch); err != nil {
		return err
	}
	if h.earlier != nil {
		if err := h.takeUnchanged(ctx, j, store); err != nil {
			return err
		}
		if r.From, r.Plan = h.earlier.taken, *j.Plan; r.From.Fresh != "" {
			h.options.Planned(j.Plan)
		}
	}
	return h.makeMatrices(ctx, store)
}

// begin finds what is finished, in the store and in the folder scratch, and counts the start. The caller holds the lock
// of the job.
func (h *hopsJob) begin(store *format.Writer, scratch string) (resumed bool, err error) {
	j := h.job
	for _, id := range j.Matrices {
		j.Finished[id] = store.Finished(id)
		resumed = resumed || j.Finished[id] && !h.has(id)
	}
	if err := h.removeHalfWritten(scratch); err != nil {
		return false, err
	}
	j.Scratch = scratch
	if j.Results, err = findResults(j.Fsys, scratch, h.target, h.nodes); err != nil {
		return false, err
	}
	if j.Checkpoints, err = j.FindCheckpoints(); err != nil {
		return false, err
	}
	j.Pace.Share, err = h.countStart(store)
	return resumed || j.HasPartialMatrices(), err
}

// makeMatrices makes the columns that are missing.
func (h *hopsJob) makeMatrices(ctx context.Context, store *format.Writer) error {
	j := h.job
	// A checkpoint of an earlier process may have fewer columns than the one panel of the plan.
	if j.Store = store; !j.Plan.ResultFiles && !j.HasResultColumns() && len(j.RemainingPanels()) < 2 {
		j.Direct = store
	}
	if err := j.Run(ctx); err != nil {
		return err
	}
	return engine.Timed(&j.Account.Publishing, func() error { return j.Assemble(ctx, store) })
}

// report sets what was measured in a result.
func (h *hopsJob) report(r *Result) {
	j, seconds := h.job, 0.0
	for _, each := range j.HopSeconds {
		seconds += each
	}
	if seconds > 0 {
		r.GatheredBytesPerSecond = float64(j.Gathered) / seconds
	}
	j.Account.Publishing += r.Time.Publishing
	r.Time = j.Account.Of(seconds, j.Plan.Panels)
	first := 1 // after hop 0
	if h.target.NoInput {
		first = 0
	}
	r.HopSeconds, r.EdgesProcessed = j.HopSeconds[first:], j.Edges[first:]
	r.TransferredBytes, r.ScratchBytes = j.Transferred, j.Fsys.Written().Bytes()
}

// explain adds to the error of a job what is wrong with its graph or its options, or ErrTooShort if it was ended before
// it had saved anything.
func (h *hopsJob) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !h.job.Pace.SavedAny && !errors.Is(err, ErrTooShort):
		err = fmt.Errorf("%w: %w", err, h.job.Pace.TooShort(0))
	case errors.Is(err, ErrInvalid):
		err = fmt.Errorf("%s: %w", h.graphDir, err)
	case errors.As(err, new(*product.ErrTooManyTerms)):
		err = fmt.Errorf("%s: %w: %w", h.graphDir, ErrOptions, err)
	}
	return err
}

// removeHalfWritten removes files that killed processes have left half-written: the plan needs their room. The caller
// holds the lock of the job.
func (s *jobContext) removeHalfWritten(scratch string) error {
	entries, err := s.fsys.ReadDir(scratch)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), folder.Suffix+vfs.TempSuffix) {
			err = errors.Join(err, s.fsys.Remove(filepath.Join(scratch, e.Name())))
		}
	}
	return err
}
