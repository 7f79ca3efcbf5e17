package sampling

// BatchBytes bounds the memory of a mini-batch of so many seeds, and of its sampler beside the table of local ids, of a
// graph of n nodes and m edges. A labor batch may exceed it slightly: its fanouts are expected numbers.
func BatchBytes(name string, o Options, seeds, n, m int64) int64 {
	kind := methodKinds[name]
	if kind == nil {
		return 0
	}
	const (
		ofNode   = 4 + 4          // input, offset of a block
		ofEdge   = 4 + 4          // source, weight
		ofChosen = 8 + 4 + 4 + 4  // number, coefficient, source, weight in the graph; of a chunk
		ofDrawn  = 4 + 8 + 8 + 28 // source, weight, sum or coefficient, draw; of a layer
	)
	nodes := min(seeds, n)
	if kind.graphWise {
		nodes = min(n, seeds*int64(len(o.Fanouts)+1))
	}
	bytes, scratch := int64(0), int64(0)
	for _, fanout := range o.Fanouts {
		// No destination has more edges than its fanout, and no block more than the graph.
		f := int64(fanout)
		if name == "labor" || name == "labor-1" {
			f *= 2
		}
		edges, sources := nodes*f, nodes*f
		if fanout == All || kind.graphWise || name == "full" || edges > m && !o.Replace {
			edges, sources = m, m
		}
		if kind.layerWise && fanout != All {
			edges, sources = min(nodes*f, m), f
			drawn := min(n, m) // LADIES looks at all sources of the layer
			if kind.prepare != nil {
				drawn = min(drawn, 2*f)
			}
			scratch = max(scratch, ofDrawn*drawn)
		}
		edges += nodes // self-loops
		bytes += ofEdge*edges + ofNode*nodes
		scratch = max(scratch, ofChosen*min(edges, chunkNodes*(max(f, 0)+1)))
		if nodes = min(n, nodes+sources); kind.graphWise {
			nodes = min(n, seeds*int64(len(o.Fanouts)+1))
		}
	}
	return (bytes + scratch + ofNode*nodes) * 5 / 4 // as slices grow
}
