package ingest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// role is a meaning of a column, and the customary names of such columns, as columnKey writes them.
// They are the same for text and Parquet tables.
type role struct {
	flag  string
	what  string
	names []string
}

var (
	sourceRole = role{"source-column", "the source of an edge", strings.Fields(`
		source src from u head i row
		sourceid srcid fromid sourcenode srcnode fromnode sourcenodeid srcnodeid fromnodeid
		startid startnode startnodeid node1 nodeid1 id1 n1 v1 vertex1 txid1
		citing citingid citingpaper citingpaperid follower followerid sender senderid
		origin originid parent parentid subject subjectid user userid customer customerid`)}
	destinationRole = role{"destination-column", "the destination of an edge", strings.Fields(`
		destination dest dst target to v tail j col column
		destinationid destid dstid targetid toid destinationnode destnode dstnode targetnode tonode
		destinationnodeid dstnodeid targetnodeid tonodeid
		endid endnode endnodeid node2 nodeid2 id2 n2 v2 vertex2 txid2
		cited citedid citedpaper citedpaperid followee followeeid receiver receiverid recipient recipientid
		child childid object objectid friend friendid`)}
	// itemRole names destinations that are numbered apart from the sources.
	itemRole = role{"destination-column", "a destination that is numbered apart from the sources", strings.Fields(`
		item itemid movie movieid product productid book bookid song songid artist artistid business businessid`)}
	weightRole = role{"weight-column", "the weight of an edge", strings.Fields(`
		weight weights w wt edgeweight edgeweights edgew`)}
	idRole = role{"id-column", "the id of a node", strings.Fields(`
		id node nodeid vertex vertexid nid uid idx nodeidx nodeindex nodename origid originalid
		entity entityid paper paperid article articleid doc docid document documentid user userid item itemid
		movie movieid product productid author authorid person personid account accountid tx txid`)}
	labelRole = role{"label-column", "the label of a node", strings.Fields(`
		label labels y class classes target targets category classid labelid classlabel nodelabel nodelabels
		nodeclass ylabel groundtruth truelabel`)}
	splitRole = role{"split-column", "the split of a node", strings.Fields(`
		split splits fold set subset partition datasplit nodesplit`)}
	maskRoles = [3]role{ // train, valid, test
		{"split-column", "the training nodes", strings.Fields(`trainmask trainingmask train training istrain`)},
		{"split-column", "the validation nodes", strings.Fields(`
			valmask validmask validationmask val valid validation isval isvalid isvalidation`)},
		{"split-column", "the test nodes", strings.Fields(`testmask testingmask test testing istest`)},
	}
)

// answerWords are words of names of columns that may give the answer away: they are no features unless they are named
// as such.
var answerWords = strings.Fields(`
	label labels class classes target targets split splits fold mask masks id ids idx index
	train training val valid validation test testing`)

// ColumnNames lists all customary names of columns.
func ColumnNames() string {
	var b strings.Builder
	b.WriteString("Columns of tables are found by these names, in any case, without spaces, \"_\", \"-\" and \".\".\n")
	for _, r := range append([]role{sourceRole, destinationRole, itemRole, weightRole, idRole, labelRole, splitRole},
		maskRoles[:]...) {
		b.WriteString("\n" + r.what + " (--" + r.flag + ")")
		line := 100
		for _, name := range r.names {
			if line += 1 + len(name); line > 100 {
				b.WriteString("\n ")
				line = 2 + len(name)
			}
			b.WriteString(" " + name)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// columnsHelp names the columns that are met most often.
const columnsHelp = `

Columns of edges are found by names such as source, src, from or u; destination, dst, target, to or v; weight or w.
Columns of nodes: id or node_id; label, y or class; split, or train_mask, val_mask and test_mask. All other columns
of numbers are features, or one that is a list of numbers. "hopfeed import --names" lists all names that are known;
--source-column and the like name others, or number them from 1. What is named like an id, a label, a split or an
index is no feature, unless --feature-columns names it in full.`

// customaryArrays are names that others give the arrays of the npy layout, PyTorch Geometric first.
var customaryArrays = map[string][]string{
	"edge_index.npy": {"edge_index", "edges", "edge_list", "edgelist"},
	"node_feat.npy":  {"x", "feat", "feats", "features", "node_features", "node_feats", "attr_matrix"},
	"node_label.npy": {"y", "label", "labels", "node_labels", "targets"},
}

// arrayHints say what to do with a file %[1]s that may hold the array %[2]s, by its ending.
var arrayHints = [][2]string{
	{".npy", "rename it to %[2]s if it is that array"},
	{".npz", "save its array as %[2]s by numpy.save"},
	{".pt", "save it as %[2]s by numpy.save(%[2]q, torch.load(%[1]q).numpy())"},
	{".pth", "save it as %[2]s by numpy.save(%[2]q, torch.load(%[1]q).numpy())"},
	{".csv", "save its array as %[2]s by numpy.save"},
	{".txt", "save its array as %[2]s by numpy.save"},
}

// arrayHint names a file of a folder that seems to hold an array, and says how import reads it; "" if there is none.
func arrayHint(files map[string]bool, wanted string) string {
	for _, stem := range customaryArrays[wanted] {
		for _, hint := range arrayHints {
			if name := stem + hint[0]; files[name] && name != wanted {
				return fmt.Sprintf("; %[1]s is there: "+hint[1], name, wanted)
			}
		}
	}
	return ""
}

// ogbRootHint names the root folder of a data set near one that has no folder raw; "" if there is none.
func ogbRootHint(fsys vfs.FS, dir string) string {
	hasRaw := func(dir string) bool {
		info, err := fsys.Stat(filepath.Join(dir, "raw"))
		return err == nil && info.IsDir()
	}
	dir = filepath.Clean(dir)
	if base := filepath.Base(dir); (base == "raw" || base == "split" || base == "processed") &&
		hasRaw(filepath.Dir(dir)) {
		return "; its parent folder " + filepath.Dir(dir) + " has one: give that"
	}
	var roots []string
	entries, _ := fsys.ReadDir(dir)
	for _, e := range entries {
		if at := filepath.Join(dir, e.Name()); hasRaw(at) {
			roots = append(roots, at)
		}
	}
	if slices.Sort(roots); len(roots) == 0 {
		return ""
	}
	return "; " + strings.Join(roots[:min(3, len(roots))], ", ") + " has one: give that"
}
