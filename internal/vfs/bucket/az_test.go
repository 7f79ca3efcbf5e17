package bucket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
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

func TestBlobsOfAzureAreFiles(t *testing.T) {
	startAzurite(t)
	const base = "az://bucket"
	f := open(t, Options{CacheBytes: 1 << 30, Retries: DefaultRetries})
	content, large := random(3*vfs.PageBytes+17), random(partBytes+12345)
	for range 2 { // the second time they are replaced
		put(t, f, base+"/d/e/x.arrow", content)
		put(t, f, base+"/d/large.arrow", large)
	}
	for range 2 { // from the cache
		wantContent(t, f, "az:/bucket/d/e/x.arrow", content)
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
	for _, path := range []string{base + "/none", "az://no-such-container/x"} {
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
