package preprop

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hopfeed/hopfeed/format"
)

// target is all that the bytes of a store depend on. Two jobs with the same target make the
// same store, and one can go on where the other ended.
type target struct {
	Graph     string            `json:"graph"` // fingerprint
	Operators []format.Operator `json:"operators"`
	Rows      string            `json:"row_set"`
	Nodes     string            `json:"nodes,omitempty"` // digest of the chosen ones
	Split     int               `json:"split"`
	Seed      uint64            `json:"seed"`
	DType     string            `json:"dtype"`
	ChunkRows int               `json:"chunk_rows"`
	// These follow from the fields above; JobStatus reads them.
	Features   int   `json:"features"`
	StoredRows int64 `json:"rows"`
}

// targetOf is the target of an existing store.
func targetOf(m *format.Manifest) target {
	return target{
		Graph: m.Input["graph"], Operators: m.Operators, Rows: m.RowSet, Split: m.Split, Seed: m.Seed,
		DType: m.DType, ChunkRows: m.ChunkRows, Features: m.Features, StoredRows: m.Rows,
	}
}

func (t target) String() string {
	text, _ := json.Marshal(t) // of such fields it cannot fail
	return string(text)
}

func parseTarget(text string) (t target, err error) {
	err = json.Unmarshal([]byte(text), &t)
	return t, err
}

// matrices are those of the store, as format.Dir lists them.
func (t target) matrices() []format.MatrixID {
	out := []format.MatrixID{format.Input}
	for _, o := range t.Operators {
		for hop := 1; hop <= o.Hops; hop++ {
			out = append(out, format.MatrixID{Operator: o.Name, Hop: hop})
		}
	}
	return out
}

// operators lists the operators and their hops in words.
func (t target) operators() string {
	var list []string
	for _, o := range t.Operators {
		list = append(list, fmt.Sprintf("%s to hop %d", o.Name, o.Hops))
	}
	if list == nil {
		return "hop 0 alone"
	}
	return strings.Join(list, ", ")
}

// differences lists in what there differs from asked; "" if in nothing.
func (there target) differences(asked target) string {
	var out []string
	add := func(what string, there, asked any) {
		if there, asked := fmt.Sprint(there), fmt.Sprint(asked); there != asked {
			out = append(out, fmt.Sprintf("%s: %s there, %s asked for", what, there, asked))
		}
	}
	if there.Graph != asked.Graph {
		add("it was made of another graph, or the graph has changed: fingerprint", shortFingerprint(there.Graph), shortFingerprint(asked.Graph))
	}
	add("operators", there.operators(), asked.operators())
	add("--rows", there.Rows, asked.Rows)
	add("chosen nodes: digest", shortFingerprint(there.Nodes), shortFingerprint(asked.Nodes))
	add("--split", there.Split, asked.Split)
	add("--seed", there.Seed, asked.Seed)
	add("--dtype", there.DType, asked.DType)
	add("--chunk-rows", there.ChunkRows, asked.ChunkRows)
	return strings.Join(out, "; ")
}

// shortFingerprint is the beginning of a fingerprint.
func shortFingerprint(fingerprint string) string { return fingerprint[:min(16, len(fingerprint))] }
