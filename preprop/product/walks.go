package product

import (
	"context"
	"iter"
)

// WalkAll calls visit with node ranges that cover a topology, from several goroutines.
type WalkAll func(visit func(b *Range) error) error

// Alone does each walk over graph by itself.
func Alone(ctx context.Context, graph Topology, threads int) WalkAll {
	return func(visit func(b *Range) error) error { return graph.Each(ctx, 0, threads, nil, visit) }
}

// WalkTogether does the walks of works over graph together, so that the topology is read once for all of them: a work
// that walks waits until each other one walks too, or has ended. Between walks one work runs at a time. After an error
// of one, no walk begins.
func WalkTogether(ctx context.Context, graph Topology, threads int, works ...func(walk WalkAll) error) error {
	type visit = func(b *Range) error
	var failure, walked error // of the works, and of the last walk
	var resume []func() (visit, bool)
	for _, work := range works {
		next, stop := iter.Pull(func(yield func(visit) bool) {
			err := work(func(v visit) error {
				yield(v)
				return walked
			})
			if failure == nil {
				failure = err
			}
		})
		defer stop()
		resume = append(resume, next)
	}
	for {
		var visits []visit
		for _, next := range resume {
			if v, walks := next(); walks {
				visits = append(visits, v)
			}
		}
		if len(visits) == 0 {
			return failure
		}
		if walked = failure; walked != nil {
			continue
		}
		walked = graph.Each(ctx, 0, threads, nil, func(b *Range) error {
			for _, v := range visits {
				if err := v(b); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
