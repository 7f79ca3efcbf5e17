package command

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// flagExceptions are flags that mean something else than the flag of the same name of other
// commands, and what. "import" stands for all import formats.
var flagExceptions = map[string]string{
	"demo --output":             "a directory of several graphs and stores",
	"export --output":           "a directory of arrays",
	"propagate --output":        "a store",
	"bench ablation --output":   "a directory of charts",
	"bench modes --output":      "a directory of charts",
	"bench surrogate --output":  "a file",
	"bench schedule --output":   "a directory of charts",
	"predict --output":          "a file",
	"tune --output":             "the folder of a search",
	"evaluate --metric":         "nothing is selected",
	"import ogb --edge-columns": "its only column can be left out",
	"plan --tasks":              "a number, without which it chooses one",

	"propagate --hops":       "what the store shall have, not what is used",
	"propagate --operator":   "what the store shall have, not what is used",
	"propagate --split":      "the split that the store is laid out by",
	"propagate --rows":       "which rows are stored, not which are evaluated",
	"propagate --chunk-rows": "rows of a chunk on disk, not of what is reshuffled",
	"evaluate --split":       "the split whose rows are evaluated",
	"predict --rows":         "rows without labels too",
	"predict --split":        "only of a graph",
	"status --scratch":       "where the job's folder is now",

	"import --features":     "a file",
	"import ogb --features": "also a single 1, or means of edges",
	"import --splits":       "a file or folder of several formats",
	"import csv --nodes":    "needed only where the input does not tell",
	"import igb --classes":  "one of two files of labels",

	"report --output":       "a file",
	"generate --edges":      "duplicates among them are merged",
	"generate --labeled":    "also says how they are split",
	"generate --undirected": "only for rmat",
	"plan --edges":          "also plans the propagation",
	"update --edges":        "a table",
	"update --nodes":        "a table",

	"sample --sampler": "all samplers",
	"sample --cache":   "only counts",
	"sample --epochs":  "not of training",
	"sample --split":   "one, that --seeds refers to",
	"sample --batch":   "seeds",

	"bench load --buffers":       "of a store, in some ways to load only",
	"bench load --placement":     "all, not auto",
	"bench ablation --placement": "all, not auto",
	"bench load --shuffle":       "all, not auto",
	"bench ablation --hops":      "several numbers",
	"bench ablation --epochs":    "how many are measured",
	"bench propagate --dtype":    "several types",
	"bench propagate --threads":  "several numbers",
}

// defaultText is what help says last of a flag: defaults may differ between commands.
var defaultText = regexp.MustCompile(` \(default:? [^()]*\)$`)

func TestAFlagHasOneMeaningInAllCommands(t *testing.T) {
	type said struct{ command, text string }
	meanings := map[string]said{} // by the key of an exception, or " --FLAG"
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		command := strings.TrimPrefix(c.CommandPath(), "hopfeed ")
		see := func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" {
				return
			}
			parent, _, _ := strings.Cut(command, " ")
			meaning := " --" + f.Name
			for _, key := range []string{parent + meaning, command + meaning} {
				if flagExceptions[key] != "" {
					meaning = key
				}
			}
			text := defaultText.ReplaceAllString(f.Usage, "")
			if other, known := meanings[meaning]; known && other.text != text {
				t.Errorf("--%s: %s says %q, %s says %q", f.Name, other.command, other.text, command, text)
			}
			meanings[meaning] = said{command, text}
		}
		c.PersistentFlags().VisitAll(see)
		c.LocalNonPersistentFlags().VisitAll(see)
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot(&app{fs: vfs.NewMem()}, ""))
	for key := range flagExceptions {
		_, flag, _ := strings.Cut(key, " --")
		switch here, others := meanings[key], meanings[" --"+flag]; {
		case here.text == "":
			t.Errorf("%s: there is no such flag", key)
		case others.text == "":
			t.Errorf("%s is no exception: no other command has the flag", key)
		case here.text == others.text:
			t.Errorf("%s is no exception: %s says the same", key, others.command)
		}
	}
	if len(meanings) < 80 {
		t.Errorf("only %d flags were found", len(meanings))
	}
}
