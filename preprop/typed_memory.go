package preprop

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hopfeed/hopfeed/preprop/engine"
	"github.com/hopfeed/hopfeed/preprop/operator"
)

// A matrix of all nodes of which matrices of stored rows alone are made stays in memory: these come right after it,
// find it in the reserve, and it is never written. A job that ends meanwhile makes it again.

// mostSecondsAgain is how long making a matrix may take, by the plan, to be made again instead of being written.
const mostSecondsAgain = 60

// errNotInMemory is returned when a matrix that was to stay in memory did not.
var errNotInMemory = errors.New("a matrix has left the memory")

// staysInMemory tells whether a matrix is handed on in memory alone.
func (t *typedJob) staysInMemory(n *typedMatrix) bool {
	return len(n.relations) > 0 && !n.labels && !n.leaf() && t.inOnePanel[n] && !t.written[n] &&
		t.options.MaxTime == 0 && t.seconds[n] <= mostSecondsAgain &&
		!slices.ContainsFunc(n.users, func(user *typedMatrix) bool {
			return !user.leaf() || len(user.inputs) > 1 || !t.inOnePanel[user]
		})
}

// inMemory is a matrix that stays in memory as an input.
func (t *typedJob) inMemory(n *typedMatrix) *engine.Input {
	rows := notWritten{evenChunks{n.head.Nodes, n.head.Nodes}}
	return &engine.Input{Chunked: rows, ID: t.id(n, n.name), Layout: t.between(n), Content: n.key}
}

// makeInMemory makes a matrix of all nodes, and leaves it in the reserve.
func (t *typedJob) makeInMemory(ctx context.Context, r *Result, graphDir string, applied []operator.Operator,
	options Options, one *step) error {
	h, err := t.openStep(ctx, t.scratch, graphDir, applied, options, one)
	if err != nil {
		return err
	}
	defer h.close()
	done := h.newResult()
	p, err := h.plan(ctx, done)
	if err != nil {
		return err
	}
	if p.Panels > 1 {
		return errNotInMemory
	}
	p.DropCheckpoints()
	j := h.job
	j.Scratch, j.Unwritten = t.scratch, true
	if err := j.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", one.id.Operator, err)
	}
	done.Plan = *p
	h.report(done)
	t.countStep(r, one, done)
	return nil
}

// writeInstead makes a matrix where one did not stay in memory: this, or the one that it is made of, is written.
func (t *typedJob) writeInstead(ctx context.Context, r *Result, n *typedMatrix) error {
	if t.staysInMemory(n) {
		return t.writeMatrix(ctx, r, n)
	}
	if err := t.writeMatrix(ctx, r, n.inputs[0]); err != nil {
		return err
	}
	return t.makeMatrix(ctx, r, n)
}

// writeMatrix makes and writes a matrix of all nodes, and before it what it is made of and has been removed.
func (t *typedJob) writeMatrix(ctx context.Context, r *Result, n *typedMatrix) error {
	t.written[n] = true
	for _, x := range n.inputs {
		if x != nil && len(x.relations) > 0 && !t.isBetween(x) {
			if err := t.writeMatrix(ctx, r, x); err != nil {
				return err
			}
		}
	}
	return t.makeMatrix(ctx, r, n)
}
