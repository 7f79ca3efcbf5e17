package bucket

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

// startAzurite starts Azurite, Microsoft's server of blobs for tests, with a container "bucket".
func startAzurite(t *testing.T) {
	program := os.Getenv("AZURITE")
	if program == "" {
		found, err := exec.LookPath("azurite-blob")
		if err != nil {
			t.Skip("there is no server of blobs to test with: put azurite-blob on PATH (npm install -g azurite), or set AZURITE")
		}
		program = found
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	server := exec.Command(program, "--silent", "--skipApiVersionCheck", "--location", t.TempDir(), "--blobHost",
		"127.0.0.1", "--blobPort", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	// The account and key that Azurite's documentation gives.
	const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	connection := "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + key +
		";BlobEndpoint=http://127.0.0.1:" + port + "/devstoreaccount1;"
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
	t.Setenv("HOPFEED_STATE_DIR", t.TempDir())
	t.Setenv("HOPFEED_CACHE_DIR", t.TempDir())
	client, err := container.NewClientFromConnectionString(connection, "bucket", nil)
	for deadline := time.Now().Add(30 * time.Second); err == nil; time.Sleep(100 * time.Millisecond) {
		if _, made := client.Create(t.Context(), nil); made == nil || time.Now().After(deadline) {
			err = made
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startGCS starts fake-gcs-server, which speaks as Google Cloud Storage does, with a bucket "bucket".
func startGCS(t *testing.T) {
	program := os.Getenv("FAKE_GCS_SERVER")
	if program == "" {
		found, err := exec.LookPath("fake-gcs-server")
		if err != nil {
			t.Skip("there is no server as Google's to test with: go install github.com/fsouza/fake-gcs-server@v1.56.1, and " +
				"put it on PATH, or set FAKE_GCS_SERVER")
		}
		program = found
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	l.Close()
	server := exec.Command(program, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory",
		"-log-level", "error", "-public-host", address)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	t.Setenv("STORAGE_EMULATOR_HOST", address)
	t.Setenv("HOPFEED_STATE_DIR", t.TempDir())
	t.Setenv("HOPFEED_CACHE_DIR", t.TempDir())
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		answer, err := http.Post("http://"+address+"/storage/v1/b", "application/json", strings.NewReader(`{"name":"bucket"}`))
		if err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestBlobsOfAzureAreFiles(t *testing.T) {
	startAzurite(t)
	testObjectsAreFiles(t, "az")
}

func TestObjectsOfGoogleAreFiles(t *testing.T) {
	startGCS(t)
	testObjectsAreFiles(t, "gs")
}

func testObjectsAreFiles(t *testing.T, scheme string) {
	base := scheme + "://bucket"
	if !vfs.IsURL(base) || !vfs.IsURL(scheme+":/bucket") {
		t.Errorf("%s is no URL", base)
	}
	f := open(t, Options{CacheBytes: 1 << 30, Retries: DefaultRetries})
	content, large := random(3*vfs.PageBytes+17), random(partBytes+12345)
	for range 2 { // the second time they are replaced
		put(t, f, base+"/d/e/x.arrow", content)
		put(t, f, base+"/d/large.arrow", large)
	}
	for range 2 { // from the cache
		wantContent(t, f, scheme+":/bucket/d/e/x.arrow", content)
		wantContent(t, f, base+"/d/large.arrow", large)
	}
	if got := f.Traffic(); got.CachedBytes != got.FetchedBytes || got.Repeated > 0 {
		t.Errorf("%+v", got)
	}
	if got := names(t, f, base+"/d"); !slices.Equal(got, []string{"e/", "large.arrow"}) {
		t.Errorf("%q", got)
	}
	if info, err := f.Stat(base + "/d/large.arrow"); err != nil || info.Size() != int64(len(large)) {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := f.Stat(base + "/d/e"); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	for _, path := range []string{base + "/none", scheme + "://no-such-container/x"} {
		if _, err := f.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	file, err := f.Open(base + "/d/e/x.arrow")
	if err != nil {
		t.Fatal(err)
	}
	put(t, f, base+"/d/e/x.arrow", random(5*vfs.PageBytes))
	vfs.Doubt(file, 0, int64(len(content)))
	if _, err := file.ReadAt(make([]byte, 10), 0); !errors.Is(err, errReplaced) {
		t.Errorf("replaced: %v", err)
	}
	if err := f.Remove(base + "/d"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("a folder with files: %v", err)
	}
	lock, err := folder.Lock(f, base+"/d/.job")
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, Options{StateDir: t.TempDir()}) // another machine
	if _, err := other.Lock(base + "/d/.job/lock"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if err := errors.Join(folder.Remove(f, base+"/d/.job"), lock.Close(), f.Remove(base+"/d/e/x.arrow"),
		f.Remove(base+"/d/large.arrow")); err != nil {
		t.Error(err)
	}
	if got := names(t, f, base); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
}

// Uploads of more parts than the server composes at a time, writes under conditions, and bodies that arrive damaged.
func TestObjectsOfGoogleAreComposedAndWrittenUnderConditions(t *testing.T) {
	startGCS(t)
	ctx := t.Context()
	s, err := openGS(ctx, location{scheme: "gs", bucket: "bucket"})
	if err != nil {
		t.Fatal(err)
	}
	body := func(b []byte) *io.SectionReader { return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))) }
	content := random(33*gsComposed*100 + 50)
	upload, err := s.begin(ctx, "d/a key?#%")
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for first := 0; first < len(content); first += 100 {
		tag, err := s.part(ctx, "d/a key?#%", upload, len(tags), body(content[first:min(first+100, len(content))]))
		if err != nil {
			t.Fatal(err)
		}
		tags = append(tags, tag)
	}
	if all, err := s.uploads(ctx, "d/"); err != nil || !slices.Equal(all, []unfinished{{"d/a key?#%", upload}}) {
		t.Errorf("%q, %v", all, err)
	}
	if all, err := s.list(ctx, "", 0); err != nil || len(all) > 0 {
		t.Errorf("an upload is seen: %+v, %v", all, err)
	}
	if err := s.complete(ctx, "d/a key?#%", upload, tags, func() {}); err != nil {
		t.Fatal(err)
	}
	o, err := s.stat(ctx, "d/a key?#%")
	if err != nil || o.bytes != int64(len(content)) {
		t.Fatalf("%+v, %v", o, err)
	}
	answer, err := s.read(ctx, o.key, o.version, 7, o.bytes-7)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(answer); err != nil || !bytes.Equal(got, content[7:]) {
		t.Errorf("%d bytes of %d, %v", len(got), len(content)-7, err)
	}
	answer.Close()
	if all, err := s.uploads(ctx, ""); err != nil || len(all) > 0 {
		t.Errorf("left: %q, %v", all, err)
	}

	first, err := s.write(ctx, "lock", body([]byte("1")), condition{none: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.write(ctx, "lock", body([]byte("2")), condition{version: first})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []condition{{none: true}, {version: first}} {
		if _, err := s.write(ctx, "lock", body([]byte("3")), c); !errors.Is(err, errReplaced) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := s.read(ctx, "lock", first, 0, 1); !errors.Is(err, errReplaced) {
		t.Errorf("an old version: %v", err)
	}
	if o, err := s.stat(ctx, "lock"); err != nil || o.version != second {
		t.Errorf("%+v, want version %s, %v", o, second, err)
	}

	s.(*gs).client.Transport = damaging{}
	if _, err := s.write(ctx, "lock", body([]byte("a body")), condition{}); err == nil || final(err) {
		t.Errorf("a damaged body: %v", err)
	}
}

func TestGoogleWithoutCredentialsSaysSo(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	endpoint, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	g := &gs{client: http.DefaultClient, endpoint: endpoint, bucket: "bucket"}
	if _, err := g.stat(t.Context(), "x"); !errors.Is(err, errExpired) {
		t.Errorf("with credentials: %v", err)
	}
	g.anonymous = errors.New("there is no file")
	if _, err := g.stat(t.Context(), "x"); !errors.Is(err, fs.ErrPermission) || !errors.Is(err, g.anonymous) {
		t.Errorf("without: %v", err)
	}
}

// damaging changes what is sent.
type damaging struct{}

func (damaging) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(text, []byte("a body"), []byte("b body"), 1)))
	return http.DefaultTransport.RoundTrip(r)
}
