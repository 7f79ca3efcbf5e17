package sampling

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// hashRelabeler does what relabeler does by a hash table with linear probing, of twice as many places
// as a batch has nodes at most, which is what is compared with the table of all nodes.
type hashRelabeler struct {
	places []hashPlace
	shift  int
}

type hashPlace struct{ node, id uint32 } // node + 1; 0: empty

func newHashRelabeler(nodes int) *hashRelabeler {
	log := bits.Len(uint(2*nodes - 1))
	return &hashRelabeler{make([]hashPlace, 1<<log), 64 - log}
}

func (r *hashRelabeler) forget() { clear(r.places) }

func (r *hashRelabeler) add(known, nodes, local []uint32) []uint32 {
	mask := len(r.places) - 1
	for i, u := range nodes {
		at := int(uint64(u) * 0x9e3779b97f4a7c15 >> r.shift)
		for r.places[at].node != 0 && r.places[at].node != u+1 {
			at = (at + 1) & mask
		}
		p := &r.places[at]
		if p.node == 0 {
			*p = hashPlace{u + 1, uint32(len(known))}
			known = append(known, u)
		}
		local[i] = p.id
	}
	return known
}

// The nodes are as many as sources of the last block of a batch of 1024 seeds with fanouts of 15, 10
// and 5, with the skew of the graph of BenchmarkSample.
func BenchmarkRelabel(b *testing.B) {
	const edges = 850_000
	for _, n := range []int{1_000_000, 16_000_000} {
		r := rand.New(rand.NewPCG(1, 2))
		sources, local := make([]uint32, edges), make([]uint32, edges)
		for i := range sources {
			x := r.Float64()
			sources[i] = uint32(uint64(float64(n)*x*x) * 11400714819323198485 % uint64(n))
		}
		known := make([]uint32, 0, edges+1)
		table, err := newRelabeler(int64(n))
		if err != nil {
			b.Fatal(err)
		}
		defer table.close()
		hash := newHashRelabeler(edges)
		for name, run := range map[string]func(){
			"table": func() {
				table.forget()
				known = known[:0]
				for at := 0; at < edges; at += 2500 {
					known = table.add(known, sources[at:at+2500], local[at:at+2500])
				}
			},
			"hash": func() { hash.forget(); known = hash.add(known[:0], sources, local) },
		} {
			b.Run(fmt.Sprintf("nodes=%d/by=%s", n, name), func(b *testing.B) {
				run()
				for b.Loop() {
					run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/edges, "ns/edge")
				b.ReportMetric(float64(len(known)), "nodes")
			})
		}
	}
}
