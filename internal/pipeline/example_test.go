package pipeline_test

import (
	"context"
	"fmt"

	"github.com/hopfeed/hopfeed/internal/pipeline"
)

// Reading runs at most two blocks ahead of the loop.
func Example() {
	p := pipeline.New(context.Background())
	defer p.Close()
	blocks := pipeline.NewQueue[string](p, 2)
	p.Go("read", func(w *pipeline.Worker) {
		defer blocks.Close()
		for _, b := range []string{"a", "b", "c"} {
			if !blocks.Send(w, b) {
				return
			}
		}
		blocks.Fail(w, fmt.Errorf("the file is cut off"))
	})
	for b, err := range blocks.All() {
		fmt.Println(b, err)
	}
	// Output:
	// a <nil>
	// b <nil>
	// c <nil>
	//  the file is cut off
}
