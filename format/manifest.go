package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Manifest is manifest.json: everything about a directory but its rows. It has
// one encoding, and bytes that are not it are not read.
type Manifest struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"` // KindGraph or KindStore
	Tool   string `json:"tool"` // version that wrote it
	Name   string `json:"name"` // of the data set

	Nodes    int64 `json:"nodes"` // of the graph
	Edges    int64 `json:"edges"` // of the graph as stored, each direction counted
	Directed bool  `json:"directed"`
	Weighted bool  `json:"weighted"`

	Features  int      `json:"features"`
	DType     string   `json:"dtype"`
	Classes   int      `json:"classes"`       // of single labels; 0 if unlabelled
	Labels    int      `json:"label_columns"` // 0 none, 1 single-label, L > 1 multi-label
	Splits    int      `json:"splits"`        // shipped splits kept
	OrigIDs   bool     `json:"orig_ids"`      // ids were mapped at import and are kept
	Rows      int64    `json:"rows"`          // stored rows: all nodes in a graph
	ChunkRows int      `json:"chunk_rows"`
	Regions   []Region `json:"regions"`

	// Of a store.
	Operators []Operator `json:"operators,omitempty"`
	Split     int        `json:"split,omitempty"`   // that the regions follow
	RowSet    string     `json:"row_set,omitempty"` // RowsLabeled or RowsAll
	Seed      uint64     `json:"seed,omitempty"`    // of the order of training rows

	// Input is what the directory was made from: the importer or generator with
	// its options, or the fingerprint of the graph.
	Input map[string]string `json:"input"`

	// Fingerprint is the SHA-256, in hexadecimal, of this file with tool, name,
	// fingerprint, index_crc32c, crc32c and sources of files empty and input null,
	// followed by each row of the index: file and crc32c (uint32), offset and length
	// (uint64), little endian. So it is a function of the content alone.
	Fingerprint string `json:"fingerprint"`

	Files       []FileEntry `json:"files"` // by path
	IndexSize   int64       `json:"index_size"`
	IndexCRC32C string      `json:"index_crc32c"`
	CRC32C      string      `json:"crc32c"` // of this file with these eight digits zeroed
}

// Operator is one propagation operator of a store.
type Operator struct {
	Name string `json:"name"` // canonical spelling
	Hops int    `json:"hops"`
}

// FileEntry is one file of a directory, path relative to it, with slashes. Where
// there is a Source, features were left in that file, and none is at Path: chunks
// follow each other from byte Offset on, as rows alone.
type FileEntry struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	CRC32C string `json:"crc32c"`           // of all bytes outside chunk bodies
	Source string `json:"source,omitempty"` // path relative to the directory, or absolute, with slashes
	Offset int64  `json:"offset,omitempty"` // of the first chunk in Source

	source string // where Source is; set by findSources
}

// Row sets of a store.
const (
	RowsLabeled = "labeled" // rows that have a label or are in a split
	RowsAll     = "all"
)

// Limits of what a manifest can say.
const (
	MaxNodes        = math.MaxUint32
	MaxEdges        = 1 << 48
	MaxLabelColumns = 1 << 16
	MaxSplits       = 1 << 12
	MaxHops         = 1000

	maxManifestBytes = 64 << 20
	maxIndexBytes    = 4 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func hex32(crc uint32) string { return fmt.Sprintf("%08x", crc) }

// parseHex32 is the inverse of hex32.
func parseHex32(s string) (uint32, error) {
	v, err := strconv.ParseUint(s, 16, 32)
	if err != nil || hex32(uint32(v)) != s {
		return 0, fmt.Errorf("%q is no checksum", s)
	}
	return uint32(v), nil
}

// manifestEnd is how every version of the format ends its manifest. The checksum
// is checked before the version is believed, so that damage is not mistaken for
// another version.
const manifestEnd = "  \"crc32c\": \"00000000\"\n}\n"

// encode is the one encoding of a manifest as it stands.
func (m *Manifest) encode() []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		panic(err) // strings, numbers, and lists of them cannot fail
	}
	return buf.Bytes()
}

// seal sets CRC32C and returns the encoding.
func (m *Manifest) seal() []byte {
	m.CRC32C = hex32(0)
	m.CRC32C = hex32(crc32.Checksum(m.encode(), castagnoli))
	return m.encode()
}

// decodeManifest is the inverse of seal, and checks what it reads. The error is
// ErrVersion, or says what is wrong with the bytes.
func decodeManifest(b []byte) (*Manifest, error) {
	digits := len(b) - len("\"\n}\n") - 8
	if digits < 0 || len(b) < len(manifestEnd) {
		return nil, errors.New("too short")
	}
	zeroed := slices.Concat(b[:digits], []byte("00000000"), b[digits+8:])
	if !bytes.HasSuffix(zeroed, []byte(manifestEnd)) {
		return nil, errors.New("it does not end with its checksum")
	}
	if want, found := hex32(crc32.Checksum(zeroed, castagnoli)), string(b[digits:digits+8]); want != found {
		return nil, fmt.Errorf("it has checksum %s, its bytes have %s", found, want)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, err
	}
	if version.Format != Version {
		return nil, fmt.Errorf("%w %d (this program reads %d)", ErrVersion, version.Format, Version)
	}
	m := new(Manifest)
	if err := json.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if !bytes.Equal(m.encode(), b) {
		return nil, errors.New("it is not written as manifests are")
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// readManifest reads and checks the manifest of a directory.
func readManifest(fsys vfs.FS, dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestName)
	b, err := readWhole(fsys, path, maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fsys.Stat(dir); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w (run the job that writes it again; or it is no graph or store)", dir, ErrIncomplete)
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(b)
	if errors.Is(err, ErrVersion) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &CorruptError{path, -1, err.Error()}
	}
	return m, m.findSources(fsys, dir)
}

// readFile reads a file that has size bytes.
func readFile(fsys vfs.FS, path string, size int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readOpen(f, size)
}

// readWhole reads a file of at most so many bytes, which another may take the place
// of meanwhile.
func readWhole(fsys vfs.FS, path string, most int64) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, &CorruptError{path, -1, fmt.Sprintf("it has %d bytes, more than the %d that it can have", size, most)}
	}
	return readOpen(f, size)
}

func readOpen(f vfs.File, size int64) ([]byte, error) {
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); int64(n) < size {
		if err == io.EOF {
			return nil, &CorruptError{f.Path(), -1, fmt.Sprintf("it ends after %d of %d bytes", n, size)}
		}
		return nil, err
	}
	return b, nil
}

// layout is how the rows are cut. The manifest has been checked.
func (m *Manifest) layout() Layout {
	t, _ := dtype.Parse(m.DType)
	return Layout{Regions: m.Regions, ChunkRows: m.ChunkRows, Features: m.Features, DType: t}
}

// check fails where a manifest contradicts itself.
func (m *Manifest) check() error {
	between := func(what string, v, lo, hi int64) error {
		if v < lo || v > hi {
			return fmt.Errorf("%s is %d, not from %d to %d", what, v, lo, hi)
		}
		return nil
	}
	if err := errors.Join(
		between("nodes", m.Nodes, 0, MaxNodes),
		between("edges", m.Edges, 0, MaxEdges),
		between("rows", m.Rows, 0, m.Nodes),
		between("classes", int64(m.Classes), 0, math.MaxInt32),
		between("label_columns", int64(m.Labels), 0, MaxLabelColumns),
		between("splits", int64(m.Splits), 0, MaxSplits),
		between("split", int64(m.Split), 0, int64(max(0, m.Splits-1))),
		between("index_size", m.IndexSize, 0, maxIndexBytes),
	); err != nil {
		return firstOf(err)
	}
	for _, s := range []string{m.Tool, m.Name} {
		if err := checkText(s); err != nil {
			return err
		}
	}
	if m.Input == nil {
		return errors.New("input is missing")
	}
	for k, v := range m.Input {
		if err := errors.Join(checkText(k), checkText(v)); err != nil {
			return firstOf(err)
		}
	}
	t, err := dtype.Parse(m.DType)
	if err != nil {
		return err
	}
	l := Layout{Regions: m.Regions, ChunkRows: m.ChunkRows, Features: m.Features, DType: t}
	kind, err := l.check()
	if err != nil {
		return err
	}
	if m.Kind != kind {
		return fmt.Errorf("kind is %q, but the regions are those of a %s", m.Kind, kind)
	}
	if rows := l.rows(); rows != m.Rows {
		return fmt.Errorf("regions of %d rows in all, but rows is %d", rows, m.Rows)
	}
	if err := m.checkOperators(); err != nil {
		return err
	}
	return m.checkFiles()
}

// firstOf is the first error of a Join, so that messages stay on one line.
func firstOf(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()[0]
	}
	return err
}

// checkText refuses what JSON encoders of different versions may write differently.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is no UTF-8", s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return fmt.Errorf("%q has a character that cannot be printed", s)
		}
	}
	return nil
}

func (m *Manifest) checkOperators() error {
	if m.Kind == KindGraph {
		if len(m.Operators) > 0 || m.Split != 0 || m.RowSet != "" || m.Seed != 0 || m.Rows != m.Nodes {
			return errors.New("a graph has all nodes as rows, and neither operators nor split, row_set or seed")
		}
		return nil
	}
	if m.RowSet != RowsLabeled && m.RowSet != RowsAll {
		return fmt.Errorf("row_set is %q, neither %q nor %q", m.RowSet, RowsLabeled, RowsAll)
	}
	seen := map[string]bool{}
	hops := 0
	for _, o := range m.Operators {
		if err := checkOperatorName(o.Name); err != nil {
			return err
		}
		if o.Name == FeaturesOperator || seen[o.Name] {
			return fmt.Errorf("operator %q is there twice", o.Name)
		}
		seen[o.Name] = true
		if o.Hops < 1 || o.Hops > MaxHops {
			return fmt.Errorf("operator %q has %d hops, not from 1 to %d", o.Name, o.Hops, MaxHops)
		}
		hops += o.Hops
	}
	// Before anything is made for each of them.
	if hops > len(m.Files) {
		return fmt.Errorf("the operators have %d hops in all, but there are %d files", hops, len(m.Files))
	}
	if len(m.Operators) > 0 && m.Features == 0 {
		return errors.New("there are operators, but no features")
	}
	return nil
}

// checkFiles checks that the files are the parts of the tables that the rest of
// the manifest calls for.
func (m *Manifest) checkFiles() error {
	parts := map[string]int{}
	for i, f := range m.Files {
		if i > 0 && m.Files[i-1].Path >= f.Path {
			return fmt.Errorf("file %q is not in its place", f.Path)
		}
		folder, _, ok := splitPart(f.Path)
		if !ok {
			return fmt.Errorf("file %q has no name of a part", f.Path)
		}
		parts[folder]++
		if f.Size < 0 {
			return fmt.Errorf("file %q has %d bytes", f.Path, f.Size)
		}
		if _, err := parseHex32(f.CRC32C); err != nil {
			return fmt.Errorf("file %q: %w", f.Path, err)
		}
		if err := f.checkSource(m.Kind, folder); err != nil {
			return err
		}
	}
	if _, err := parseHex32(m.IndexCRC32C); err != nil {
		return err
	}
	for _, t := range m.tables() {
		n := parts[t.folder]
		if n == 0 {
			return fmt.Errorf("no file in %s", t.folder)
		}
		for k := range n {
			if _, ok := m.find(partPath(t.folder, k)); !ok {
				return fmt.Errorf("%s is missing, but later parts are there", partPath(t.folder, k))
			}
		}
		delete(parts, t.folder)
	}
	for folder := range parts {
		return fmt.Errorf("files in %s, of which nothing is said", folder)
	}
	return nil
}

// ownBytes is the size of manifest and index.
func (m *Manifest) ownBytes() int64 { return m.IndexSize + int64(len(m.encode())) }

// Bytes is the size of all files of the directory, and of those with features
// that were left in them.
func (m *Manifest) Bytes() int64 {
	total := m.ownBytes()
	for _, f := range m.Files {
		total += f.Size
	}
	return total
}

// find is the position of a path among the files.
func (m *Manifest) find(path string) (int, bool) {
	return slices.BinarySearchFunc(m.Files, path, func(f FileEntry, path string) int { return strings.Compare(f.Path, path) })
}

// fingerprint is the value of the field Fingerprint.
func (m *Manifest) fingerprint(index []indexRow) string {
	c := *m
	c.Tool, c.Name, c.Fingerprint, c.IndexCRC32C, c.CRC32C, c.Input = "", "", "", "", "", nil
	c.Files = slices.Clone(m.Files)
	for i := range c.Files {
		c.Files[i].Source = ""
	}
	h := sha256.New()
	h.Write(c.encode())
	var b []byte
	for _, r := range index {
		b = binary.LittleEndian.AppendUint32(b[:0], r.file)
		b = binary.LittleEndian.AppendUint32(b, r.crc)
		b = binary.LittleEndian.AppendUint64(b, uint64(r.offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.length))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
