package npy

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"

	"github.com/hopfeed/hopfeed/internal/dtype"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// openArchive opens an .npz file: a zip of .npy members, stored or deflated. The caller closes the file.
func openArchive(fsys vfs.FS, path string) (*zip.Reader, vfs.File, error) {
	f, size, err := vfs.OpenSized(fsys, path)
	if err != nil {
		return nil, nil, err
	}
	// A section reader returns EOF for offsets beyond the file, which a damaged directory may have.
	z, err := zip.NewReader(io.NewSectionReader(f, 0, size), size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // members are never unpacked to their names
		return nil, nil, errors.Join(invalid(path, err), f.Close())
	}
	z.RegisterDecompressor(zip.Deflate, flate.NewReader)
	return z, f, nil
}

// Members lists the names of the arrays of an .npz file, sorted.
func Members(fsys vfs.FS, path string) (names []string, err error) {
	z, f, err := openArchive(fsys, path)
	if err != nil {
		return nil, err
	}
	for _, member := range z.File {
		if name, ok := strings.CutSuffix(member.Name, ".npy"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), f.Close()
}

// invalid adds the path to an error of reading, and makes it ErrInvalid unless the file system is its cause.
func invalid(path string, err error) error {
	if vfs.Failed(err) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
}

// Stream is an array that is read once, from its first element to its last. The checksum of an archive is compared
// behind the last.
type Stream struct {
	Header
	path    string // of an archive: with the member
	closers [2]io.Closer
	r       *bufio.Reader
	left    int64 // elements that were not read yet
	raw     []byte
}

// Stream starts to read the array from its start. It is valid as long as the array is open, and need not be closed.
func (a *Array) Stream() *Stream {
	data := io.NewSectionReader(a.file, a.Offset, a.DataBytes())
	return &Stream{Header: a.Header, path: a.Path(), r: bufio.NewReaderSize(data, 1<<16), left: a.Elements()}
}

// OpenStream starts to read an array of an .npz file. NumPy reads the last member of a name, and so does this.
func OpenStream(fsys vfs.FS, path, name string) (_ *Stream, err error) {
	z, f, err := openArchive(fsys, path)
	if err != nil {
		return nil, err
	}
	s := &Stream{path: path + ": " + name, closers: [2]io.Closer{f}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, member := range slices.Backward(z.File) {
		if member.Name == name+".npy" {
			return s, s.open(member)
		}
	}
	return nil, fmt.Errorf("%w: %s: the archive has no such array", ErrInvalid, s.path)
}

func (s *Stream) open(f *zip.File) error {
	member, err := f.Open()
	if err != nil {
		return invalid(s.path, err)
	}
	s.closers[1], s.r = member, bufio.NewReaderSize(member, 1<<16)
	h, err := ReadHeader(s.r)
	if err == nil {
		if want := uint64(h.Offset) + uint64(h.DataBytes()); f.UncompressedSize64 != want {
			err = fmt.Errorf("%s array of shape %v needs %d bytes, the member has %d", h.Type, h.Shape, want,
				f.UncompressedSize64)
		}
	}
	if err != nil {
		return invalid(s.path, err)
	}
	s.Header, s.left = *h, h.Elements()
	return nil
}

// Path names the file or, in an archive, the file and the array.
func (s *Stream) Path() string { return s.path }

// Close ends the stream. A deflated member that is damaged where nobody has read yet may say so here.
func (s *Stream) Close() (err error) {
	for _, c := range slices.Backward(s.closers[:]) {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return invalid(s.path, err)
	}
	return nil
}

// Next reads the next len(dst) elements into dst.
func Next[T Number](s *Stream, dst []T) error {
	if err := s.checkNumbers(s.path); err != nil {
		return err
	}
	size := s.ItemBytes()
	for len(dst) > 0 {
		n := min(len(dst), blockBytes/int(size))
		raw, err := s.next(int64(n))
		if err != nil {
			return err
		}
		Convert(dst[:n], raw, &s.Header)
		dst = dst[n:]
	}
	return nil
}

// next reads the bytes of n elements. After the last element it reads to the end of the member, since only there the
// zip reader compares the checksum.
func (s *Stream) next(n int64) ([]byte, error) {
	if n > s.left {
		return nil, fmt.Errorf("%w: %s: ends %d elements early", ErrInvalid, s.path, n-s.left)
	}
	bytes := n * s.ItemBytes()
	if int64(cap(s.raw)) < bytes {
		s.raw = make([]byte, bytes)
	}
	raw := s.raw[:bytes]
	if _, err := io.ReadFull(s.r, raw); err != nil {
		return nil, invalid(s.path, err)
	}
	if s.left -= n; s.left == 0 {
		if _, err := s.r.ReadByte(); err != io.EOF {
			if err == nil {
				err = zip.ErrFormat
			}
			return nil, invalid(s.path, err)
		}
	}
	return raw, nil
}

// Strings reads a stream of strings. Strings that were read together share memory.
func (s *Stream) Strings() ([]string, error) {
	if s.Type != Bytes && s.Type != Text {
		return nil, fmt.Errorf("%w: %s: %s where strings are expected", ErrInvalid, s.path, s.Type)
	}
	out := make([]string, s.Elements())
	size := s.ItemBytes()
	perBlock := max(1, blockBytes/max(1, size))
	var text []byte
	var ends []int
	for first := int64(0); first < int64(len(out)); first += perBlock {
		n := min(perBlock, int64(len(out))-first)
		raw, err := s.next(n)
		if err != nil {
			return nil, err
		}
		text, ends = text[:0], ends[:0]
		for i := range n {
			var ok bool
			if text, ok = appendString(text, raw[i*size:(i+1)*size], &s.Header); !ok {
				return nil, fmt.Errorf("%w: %s: string %d is not %s", ErrInvalid, s.path, first+i,
					map[Type]string{Bytes: "UTF-8", Text: "UTF-32"}[s.Type])
			}
			ends = append(ends, len(text))
		}
		block, start := string(text), 0
		for i, end := range ends {
			out[first+int64(i)], start = block[start:end], end
		}
	}
	return out, nil
}

// appendString appends a string without the zeros that pad it to its width. ok is false if the bytes are not UTF-8, or
// a number is not a Unicode character.
func appendString(dst, raw []byte, h *Header) (text []byte, ok bool) {
	if h.Type == Bytes {
		raw = bytes.TrimRight(raw, "\x00")
		return append(dst, raw...), utf8.Valid(raw)
	}
	swapBytes(raw, 4, h.BigEndian)
	runes := dtype.As[int32](raw)
	for len(runes) > 0 && runes[len(runes)-1] == 0 {
		runes = runes[:len(runes)-1]
	}
	for _, r := range runes {
		if !utf8.ValidRune(r) {
			return dst, false
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, true
}
