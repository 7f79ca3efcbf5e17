package format

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/progress"
	"github.com/hopfeed/hopfeed/internal/version"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// KindTyped is the kind of a typed graph.
const KindTyped = "typed"

// Typed is types.json: a graph with several types of nodes, which is a folder of graph directories. nodes/<type> has
// the features, labels and splits of a type, and no edges; relations/<source>__<name>__<destination> has the edges of a
// relation, by destination, and no features (OpenRelation). It is written last: a folder without it is no typed graph.
type Typed struct {
	Format      int        `json:"format"`
	Kind        string     `json:"kind"` // "typed"
	Tool        string     `json:"tool"` // version that wrote it
	Name        string     `json:"name"`
	Target      string     `json:"target"` // type whose nodes are classified
	Types       []NodeType `json:"node_types"`
	Relations   []Relation `json:"relations"`
	Fingerprint string     `json:"fingerprint"` // of the content
	CRC32C      string     `json:"crc32c"`      // of this file with these eight digits zeroed
}

// NodeType is a type of nodes.
type NodeType struct {
	Name        string `json:"name"`
	Nodes       int64  `json:"nodes"`
	Features    int    `json:"features"`    // of each node; 0: none
	Fingerprint string `json:"fingerprint"` // of its graph directory
}

// Relation is the edges of one kind between two types, or within one.
type Relation struct {
	Source      string `json:"source"`
	Name        string `json:"name"` // "": none
	Destination string `json:"destination"`
	Edges       int64  `json:"edges"`
	Fingerprint string `json:"fingerprint"` // of its graph directory
}

const (
	typesName       = "types.json"
	relationsFolder = "relations"
	maxTypes        = 1000 // and as many relations
)

// isTypeName matches the names of types and relations: they are parts of names of folders.
var isTypeName = regexp.MustCompile(`^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$`).MatchString

// CheckTypeName fails for what cannot name a type of nodes or a relation.
func CheckTypeName(name string) error {
	if len(name) > 40 || !isTypeName(name) {
		return fmt.Errorf("%q cannot name a type or a relation (a letter of a-z, then a-z, 0-9 and single _, at most 40 "+
			"characters)", name)
	}
	return nil
}

func (r Relation) String() string {
	if r.Name == "" {
		return r.Source + "__" + r.Destination
	}
	return r.Source + "__" + r.Name + "__" + r.Destination
}

// NodesDir and RelationDir are the graph directories of a type and of a relation of the typed graph dir.
func NodesDir(dir, nodeType string) string { return filepath.Join(dir, nodesFolder, nodeType) }

func RelationDir(dir string, r Relation) string {
	return filepath.Join(dir, relationsFolder, r.String())
}

// Type finds a type by name.
func (t *Typed) Type(name string) (_ *NodeType, found bool) {
	at := slices.IndexFunc(t.Types, func(n NodeType) bool { return n.Name == name })
	if at < 0 {
		return nil, false
	}
	return &t.Types[at], true
}

// IsTyped tells whether dir holds a typed graph.
func IsTyped(fsys vfs.FS, dir string) bool {
	_, err := fsys.Stat(filepath.Join(dir, typesName))
	return err == nil
}

// OpenTyped reads what types and relations a typed graph has. It does not open them.
func OpenTyped(fsys vfs.FS, dir string) (*Typed, error) {
	path := filepath.Join(dir, typesName)
	t := new(Typed)
	_, err := readAgain(fsys, path, maxManifestBytes, t.decode)
	if errors.Is(err, fs.ErrNotExist) {
		m, err := readManifest(fsys, dir)
		if err == nil {
			err = fmt.Errorf("%w: %s is a %s: give a graph of several types", ErrKind, dir, m.Kind)
		}
		return nil, err
	}
	if err != nil && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrCorrupt) {
		err = &CorruptError{path, -1, err.Error() + " (import again with --force)"}
	}
	return t, err
}

// OpenTarget opens the nodes of the target of a typed graph: see Dir.Typed.
func OpenTarget(fsys vfs.FS, dir string) (*Dir, error) {
	t, err := OpenTyped(fsys, dir)
	if err != nil {
		return nil, err
	}
	d, err := t.OpenNodes(fsys, dir, t.Target)
	if err != nil {
		return nil, err
	}
	d.Typed, d.TypedPath, d.Manifest.Name, d.Manifest.Fingerprint = t, dir, t.Name, t.Fingerprint
	for _, r := range t.Relations {
		d.Manifest.Edges += r.Edges
	}
	return d, nil
}

// OpenNodes opens the graph directory of a type of the typed graph in dir, and checks that it is the one named here.
func (t *Typed) OpenNodes(fsys vfs.FS, dir, nodeType string) (*Dir, error) {
	d, err := OpenGraph(fsys, NodesDir(dir, nodeType))
	if err != nil {
		return nil, err
	}
	n, _ := t.Type(nodeType)
	return d.named(n != nil && n.is(&d.Manifest))
}

// OpenRelation opens the edges of a relation of the typed graph in dir, and checks that they are those named here.
func (t *Typed) OpenRelation(fsys vfs.FS, dir string, r Relation) (*Dir, error) {
	d, err := OpenRelation(fsys, RelationDir(dir, r))
	if err != nil {
		return nil, err
	}
	return d.named(t.isRelation(r, &d.Manifest))
}

// EdgeFeatures says, by the name of a type, which of its features in the graph in dir come from edges: its last ones.
func (t *Typed) EdgeFeatures(fsys vfs.FS, dir string) (map[string]string, error) {
	all := map[string]string{}
	for _, n := range t.Types {
		d, err := OpenGraph(fsys, NodesDir(dir, n.Name))
		if err != nil {
			return nil, err
		}
		if said := d.Manifest.Input[EdgeFeatures]; said != "" {
			all[n.Name] = said
		}
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Weighted tells whether a relation of the typed graph in dir has weights of edges.
func (t *Typed) Weighted(fsys vfs.FS, dir string) (weighted bool, err error) {
	for _, r := range t.Relations {
		d, err := t.OpenRelation(fsys, dir, r)
		if err != nil {
			return false, err
		}
		weighted = weighted || d.Manifest.Weighted
		if err := d.Close(); err != nil {
			return false, err
		}
	}
	return weighted, nil
}

// named is d; if it is not what types.json names, it closes d.
func (d *Dir) named(same bool) (*Dir, error) {
	if !same {
		return nil, errors.Join(&CorruptError{d.path, -1, notNamed}, d.Close())
	}
	return d, nil
}

const notNamed = "it is not the one that types.json names"

// is tells whether the manifest is that of the nodes of the type.
func (n *NodeType) is(m *Manifest) bool {
	return m.Fingerprint == n.Fingerprint && m.Nodes == n.Nodes && m.Features == n.Features
}

// isRelation tells whether the manifest is that of a relation.
func (t *Typed) isRelation(r Relation, m *Manifest) bool {
	from, _ := t.Type(r.Source)
	to, _ := t.Type(r.Destination)
	return from != nil && to != nil && m.Fingerprint == r.Fingerprint && m.Nodes == to.Nodes && m.Edges == r.Edges &&
		(m.SourceNodes == from.Nodes || m.SourceNodes == 0 && from == to)
}

// decode is the inverse of encode, and checks what it reads.
func (t *Typed) decode(b []byte) error {
	if err := checkManifestSum(b); err != nil {
		return err
	}
	fields, err := members(b)
	if err != nil {
		return err
	}
	if err := decodeFields(fields, reflect.ValueOf(t).Elem()); err != nil {
		return err
	}
	if t.Format != Version {
		return errVersion(t.Format)
	}
	return t.check()
}

func (t *Typed) check() error {
	if t.Kind != KindTyped || len(t.Types) > maxTypes || len(t.Relations) > maxTypes {
		return fmt.Errorf("kind is %q, and there are %d types and %d relations: want %q and at most %d", t.Kind,
			len(t.Types), len(t.Relations), KindTyped, maxTypes)
	}
	for i, n := range t.Types {
		if err := CheckTypeName(n.Name); err != nil {
			return err
		}
		if n.Nodes < 1 || n.Nodes > MaxNodes || n.Features < 0 || n.Features > MaxFeatures {
			return fmt.Errorf("type %s has %d nodes and %d features", n.Name, n.Nodes, n.Features)
		}
		if i > 0 && n.Name <= t.Types[i-1].Name {
			return fmt.Errorf("type %s is not in its place (names ascend)", n.Name)
		}
	}
	if _, found := t.Type(t.Target); !found {
		return fmt.Errorf("the target is %q, no type of the graph", t.Target)
	}
	for i, r := range t.Relations {
		if r.Name != "" {
			if err := CheckTypeName(r.Name); err != nil {
				return err
			}
		}
		_, from := t.Type(r.Source)
		_, to := t.Type(r.Destination)
		if !from || !to {
			return fmt.Errorf("relation %s has an end that is no type of the graph", r)
		}
		if i > 0 && r.String() <= t.Relations[i-1].String() {
			return fmt.Errorf("relation %s is not in its place (names ascend)", r)
		}
	}
	return checkText(t.Name)
}

// encode sets Format, Kind, Tool, Fingerprint and CRC32C, and returns the bytes of types.json.
func (t *Typed) encode() []byte {
	t.Format, t.Kind, t.Tool = Version, KindTyped, version.Version
	h := sha256.New()
	fmt.Fprintln(h, KindTyped, Version, t.Target)
	for _, n := range t.Types {
		fmt.Fprintln(h, "type", n.Name, n.Fingerprint)
	}
	for _, r := range t.Relations {
		fmt.Fprintln(h, "relation", r, r.Fingerprint)
	}
	t.Fingerprint = fmt.Sprintf("%x", h.Sum(nil))
	return encodeSigned(&t.CRC32C, func() []byte { return encodeJSON("", t) })
}

// TypedWriter writes the graph directories of a typed graph.
type TypedWriter struct {
	fsys   vfs.FS
	dir    string    // that readers will open
	at     string    // where it is written: dir, or its replacement
	locked string    // the folder with .job
	lock   io.Closer // nil: published or aborted
}

// CreateTyped begins a typed graph in a folder that is not there yet; with force, it may replace one. What an
// interrupted job left is removed.
func CreateTyped(fsys vfs.FS, dir string, force bool) (_ *TypedWriter, err error) {
	if err := folder.CheckName(dir); err != nil {
		return nil, err
	}
	if err := folder.Restore(fsys, dir, jobFolder+"/"+lockName); err != nil {
		return nil, err
	}
	if err := CheckReplaceable(fsys, dir, KindTyped); err != nil {
		return nil, err
	}
	w := &TypedWriter{fsys: fsys, dir: dir, at: dir, locked: dir}
	complete := IsTyped(fsys, dir)
	if complete && !force {
		return nil, fmt.Errorf("%s: %w (--force replaces it)", dir, ErrExists)
	}
	entries, err := fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if !slices.Contains([]string{nodesFolder, relationsFolder, typesName, jobFolder}, e.Name()) {
			return nil, fmt.Errorf("%s: %w, and holds %s, which is no part of a typed graph (give another directory)", dir,
				ErrExists, e.Name())
		}
	}
	if len(entries) > 0 && !complete {
		if ours, err := folder.Ours(fsys, filepath.Join(dir, jobFolder), lockName); err != nil || !ours {
			return nil, fmt.Errorf("%s: %w, and nothing shows that Hopfeed has made it (remove it, or give another "+
				"directory)", dir, ErrExists)
		}
	}
	if w.lock, err = folder.Lock(fsys, filepath.Join(dir, jobFolder)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if complete {
		if w.at, err = fsys.Resolve(dir); err == nil {
			w.at += folder.ReplacementSuffix
		}
	}
	if err == nil {
		err = w.clear(w.at)
	}
	if err == nil && complete {
		err = fsys.MkdirAll(w.at)
	}
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// Dir is the folder to make the graph directories in.
func (w *TypedWriter) Dir() string { return w.at }

// clear removes the graph directories of a folder, types.json before them, and not .job.
func (w *TypedWriter) clear(dir string) error {
	if err := folder.RemoveFile(w.fsys, filepath.Join(dir, typesName)); err != nil {
		return err
	}
	for _, name := range []string{nodesFolder, relationsFolder} {
		at := filepath.Join(dir, name)
		entries, err := w.fsys.ReadDir(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, e := range entries {
			if err == nil {
				err = Remove(w.fsys, filepath.Join(at, e.Name()))
			}
		}
		if err == nil {
			err = w.fsys.Remove(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Publish writes types.json, from which on readers can open the typed graph, and sets what Typed.encode sets.
func (w *TypedWriter) Publish(t *Typed) error {
	slices.SortFunc(t.Types, func(a, b NodeType) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Relations, func(a, b Relation) int { return strings.Compare(a.String(), b.String()) })
	encoded := t.encode()
	if err := t.check(); err != nil {
		return fmt.Errorf("%s: cannot be published: %w", w.dir, err)
	}
	if err := vfs.WriteFile(w.fsys, filepath.Join(w.at, typesName), encoded); err != nil {
		return err
	}
	if w.at == w.dir {
		return w.unlock()
	}
	old, err := folder.Swap(w.fsys, strings.TrimSuffix(w.at, folder.ReplacementSuffix))
	if err != nil {
		return err
	}
	w.at, w.locked = old, old
	return w.Abort()
}

// Abort removes what the job has written, and unlocks the folder. After Publish it does nothing.
func (w *TypedWriter) Abort() error {
	if w.lock == nil {
		return nil
	}
	err := w.clear(w.at)
	if w.at != w.locked {
		err = errors.Join(err, w.fsys.Remove(w.at))
	}
	return errors.Join(err, w.unlock())
}

// unlock removes .job, and the folder that it is in if nothing else is there.
func (w *TypedWriter) unlock() error {
	err := folder.Remove(w.fsys, filepath.Join(w.locked, jobFolder))
	err = errors.Join(err, w.lock.Close())
	w.lock = nil
	_ = w.fsys.Remove(w.locked)
	return err
}

// VerifyTyped is Verify for each graph directory of a typed graph, which must be those that types.json names, and no
// others.
func VerifyTyped(ctx context.Context, fsys vfs.FS, dir string, threads int, p progress.Reporter) (*VerifyReport,
	error) {
	report := &VerifyReport{Bad: []CorruptError{}, Notes: []Note{}}
	t, err := OpenTyped(fsys, dir)
	var damage *CorruptError
	if errors.As(err, &damage) {
		report.Bad = append(report.Bad, *damage)
		return report, nil
	}
	if err != nil {
		return nil, err
	}
	report.Files++
	listed := map[string]bool{filepath.Join(dir, typesName): true, filepath.Join(dir, jobFolder): true}
	check := func(at string, same func(m *Manifest) bool) error {
		listed[at] = true
		one, err := Verify(ctx, fsys, at, threads, p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrIncomplete) {
			report.Bad = append(report.Bad, CorruptError{at, -1, "the folder is missing, or has no manifest"})
			return nil
		}
		if err != nil {
			return err
		}
		if m, err := readManifest(fsys, at); err == nil && !same(m) {
			report.Bad = append(report.Bad, CorruptError{at, -1, notNamed})
		}
		report.Files, report.Chunks, report.Bytes = report.Files+one.Files, report.Chunks+one.Chunks, report.Bytes+one.Bytes
		report.Bad, report.Notes = append(report.Bad, one.Bad...), append(report.Notes, one.Notes...)
		return nil
	}
	for _, n := range t.Types {
		if err := check(NodesDir(dir, n.Name), n.is); err != nil {
			return nil, err
		}
	}
	for _, r := range t.Relations {
		if err := check(RelationDir(dir, r), func(m *Manifest) bool { return t.isRelation(r, m) }); err != nil {
			return nil, err
		}
	}
	for _, at := range []string{dir, filepath.Join(dir, nodesFolder), filepath.Join(dir, relationsFolder)} {
		entries, err := fsys.ReadDir(at)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(at, e.Name())
			switch {
			case listed[path] || at == dir && (e.Name() == nodesFolder || e.Name() == relationsFolder):
			case isClutter(e.Name(), e.IsDir()):
				report.Notes = append(report.Notes, Note{path, "it is no part of the typed graph"})
			default:
				report.Bad = append(report.Bad, CorruptError{path, -1, "types.json does not name it"})
			}
		}
	}
	report.Remedy = "put back a copy of the typed graph, or import it again with --force"
	return report, nil
}
