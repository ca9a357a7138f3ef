/* Calls that write below one folder: counted and made to fail, or recorded.

   Loaded with LD_PRELOAD, so that Python, numpy, torch, Rust and C++ libraries all pass through it. All processes of a
   command share one page of memory, which bench/torture/shim.py maps too. The page says what to do:
   FAIL    counts the calls on files below `folder`; the call number `at` fails with `error`, or the process is killed
           in the middle of it. With `is_lasting`, calls that need space fail from there on.
   RECORD  writes down the calls in order, and copies a file when it is synced or closed, for the replay of power losses.
   PIPE    counts the writes to pipes (jobs and answers); at number `at` half of the bytes are written and the process
           is killed. Writes of the process that forks commands do not count: it is not part of a command.
   Real work is done by raw system calls, which are never intercepted. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, FAIL, RECORD, PIPE };
enum { LOG_BYTES = 1 << 23, MAPPED = 256 };

struct page {
    int mode, error, is_lasting, lock;
    long at, count, log_used, snapshots_used;
    char folder[512], snapshots[512];
    char log[LOG_BYTES];
};
static struct page *page;
static int forker; /* the process that this library was loaded into; commands are forked from it */
static struct { char *from; size_t size; char path[PATH_MAX]; } mapped[MAPPED];

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("TORTURE_PAGE");
    forker = syscall(SYS_getpid);
    int fd = name ? syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *at = (void *)syscall(SYS_mmap, NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (at != MAP_FAILED) page = at;
}

/* ---- which file a call is about */

static int is_ours(const char *path) {
    size_t n = strlen(page->folder);
    return n && !strncmp(path, page->folder, n) && (path[n] == '/' || !path[n]);
}

/* 0: not our file; 1: ours; 2: ours, and its name was removed while it is open. */
static int path_of(int fd, char *path) {
    static const char gone[] = " (deleted)";
    const size_t n_gone = sizeof gone - 1;
    char link[40];
    if (!page || page->mode == OFF || page->mode == PIPE || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (n <= 0 || path[0] != '/') return 0;
    path[n] = 0;
    int is_gone = (size_t)n > n_gone && !strcmp(path + n - n_gone, gone);
    if (is_gone) path[n - n_gone] = 0;
    return is_ours(path) ? 1 + is_gone : 0;
}

static int path_at(int folder, const char *name, char *path) {
    if (!page || page->mode == OFF || page->mode == PIPE || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char link[40];
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 2);
        if (n <= 0) return 0;
        snprintf(path + n, PATH_MAX - n, "/%s", name);
    }
    return is_ours(path);
}

static unsigned long inode_of(const char *path) {
    struct stat about;
    return syscall(SYS_newfstatat, AT_FDCWD, path, &about, AT_SYMLINK_NOFOLLOW) ? 0 : about.st_ino;
}

static unsigned long inode_of_open(int fd) {
    struct stat about;
    return syscall(SYS_fstat, fd, &about) ? 0 : about.st_ino;
}

static int is_pipe(int fd) {
    struct stat about;
    return !syscall(SYS_fstat, fd, &about) && S_ISFIFO(about.st_mode);
}

/* ---- the log */

static void note(const char *what, unsigned long inode, const char *path, const char *other, long snapshot) {
    char line[2 * PATH_MAX + 128];
    int n = snprintf(line, sizeof line, "%s\t%lu\t%s\t%s\t%ld\n", what, inode, path, other ? other : "", snapshot);
    long at = __atomic_fetch_add(&page->log_used, n, __ATOMIC_SEQ_CST);
    if (at + n <= LOG_BYTES) memcpy(page->log + at, line, n);
}

static int is_recording(void) { return page->mode == RECORD; }

/* A process may be killed while it has the lock: the next one then takes it. */
static void lock(void) {
    int me = syscall(SYS_getpid);
    for (long tries = 1; is_recording(); tries++) {
        int holder = 0;
        if (__atomic_compare_exchange_n(&page->lock, &holder, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
        if (tries % 10000 == 0 && syscall(SYS_kill, holder, 0) && errno == ESRCH)
            __atomic_compare_exchange_n(&page->lock, &holder, 0, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
        sched_yield();
    }
}

static void unlock(void) {
    int kept = errno;
    if (is_recording()) __atomic_store_n(&page->lock, 0, __ATOMIC_RELEASE);
    errno = kept;
}

static long new_snapshot(int *to) {
    char name[600];
    long number = __atomic_add_fetch(&page->snapshots_used, 1, __ATOMIC_SEQ_CST);
    snprintf(name, sizeof name, "%s/%ld", page->snapshots, number);
    *to = syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return number;
}

static long snapshot_of(int fd) {
    char bytes[1 << 16], path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int to, from = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0) return 0;
    long n, number = new_snapshot(&to);
    while ((n = syscall(SYS_read, from, bytes, sizeof bytes)) > 0) syscall(SYS_write, to, bytes, n);
    syscall(SYS_close, from);
    syscall(SYS_close, to);
    return number;
}

static void said(const void *bytes, size_t n) {
    int to;
    lock();
    long number = new_snapshot(&to);
    syscall(SYS_write, to, bytes, n);
    syscall(SYS_close, to);
    note("said", 0, "", "", number);
    unlock();
}

/* ---- failing */

static void die(void) {
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) syscall(SYS_pause);
}

/* The error to fail with; 0: go on. `needs_space`: it fails on a full disk. The caller of a write dies itself. */
static int failing(const char *what, const char *path, int needs_space) {
    if (page->mode != FAIL) return 0;
    long number = __atomic_add_fetch(&page->count, 1, __ATOMIC_SEQ_CST);
    note(what, number, path, "", 0);
    int is_it = number == page->at || (page->is_lasting && needs_space && page->at && number > page->at);
    if (is_it && page->error == -SIGKILL && strcmp(what, "write")) die();
    return is_it ? page->error : 0;
}

#define FAIL_IF(what, path, needs_space) \
    do { int e_ = failing(what, path, needs_space); if (e_) { errno = e_; return -1; } } while (0)

/* ---- open, close, map */

static int opened(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if ((flags & O_DIRECTORY) || !path_at(folder, name, path)) return syscall(SYS_openat, folder, name, flags, mode);
    int is_writing = (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY;
    FAIL_IF(is_writing ? "open" : "open to read", path, flags & O_CREAT);
    lock();
    int existed = inode_of(path) != 0;
    int fd = syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && is_recording() && is_writing) {
        if (!existed) note("create", inode_of(path), path, "", 0);
        else if (flags & O_TRUNC) note("dirty", inode_of(path), path, "", 0);
    }
    unlock();
    return fd;
}

#define OPEN(function) \
    int function(const char *name, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        return opened(AT_FDCWD, name, flags, mode); }
#define OPENAT(function) \
    int function(int folder, const char *name, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more); \
        return opened(folder, name, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

static void closing(int fd) {
    char path[PATH_MAX];
    struct stat about;
    if (!page || page->mode != RECORD) return;
    int found = path_of(fd, path);
    if (!found) return;
    if ((syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDONLY) return;
    lock();
    if (!syscall(SYS_fstat, fd, &about) && S_ISREG(about.st_mode) && about.st_nlink)
        note("close", about.st_ino, found == 2 ? "" : path, "", snapshot_of(fd));
    unlock();
}

int close(int fd) {
    closing(fd);
    return syscall(SYS_close, fd);
}

static void *map(void *at, size_t size, int protection, int flags, int fd, off_t from) {
    char path[PATH_MAX];
    if (fd < 0 || !path_of(fd, path)) return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, from);
    int error = failing("mmap", path, 0);
    if (error) { errno = error; return MAP_FAILED; }
    char *found = (char *)syscall(SYS_mmap, at, size, protection, flags, fd, from);
    if (is_recording() && found != MAP_FAILED && (flags & MAP_SHARED) && (protection & PROT_WRITE)) {
        lock();
        for (int i = 0; i < MAPPED; i++)
            if (!mapped[i].from || mapped[i].from == found) {
                mapped[i].from = found; mapped[i].size = size; strcpy(mapped[i].path, path);
                break;
            }
        note("dirty", inode_of(path), path, "", 0);
        unlock();
    }
    return found;
}
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) { return map(a, n, p, f, fd, o); }
void *mmap64(void *a, size_t n, int p, int f, int fd, off_t o) { return map(a, n, p, f, fd, o); }

/* ---- write */

/* Bytes that may still be written by a process that is killed in the middle of a write; -1: it lives. */
static long before_writing(int fd, size_t n, int *error) {
    char path[PATH_MAX];
    *error = 0;
    if (!page || page->mode == OFF) return -1;
    if (page->mode == PIPE) {
        if (fd <= 2 || !is_pipe(fd) || syscall(SYS_getpid) == forker) return -1;
        if (__atomic_add_fetch(&page->count, 1, __ATOMIC_SEQ_CST) == page->at) return n / 2;
        return -1;
    }
    if (!path_of(fd, path)) return -1;
    if (is_recording()) { lock(); note("dirty", inode_of_open(fd), path, "", 0); unlock(); }
    *error = failing("write", path, 1);
    return *error == -SIGKILL ? (long)(n / 2) : -1;
}

#define WRITE(fd, n, half, whole) \
    do { int e_; long left_ = before_writing(fd, n, &e_); \
         if (left_ >= 0) { size_t h_ = left_; half; die(); } \
         if (e_) { errno = e_; return -1; } \
         return whole; } while (0)

ssize_t write(int fd, const void *bytes, size_t n) {
    if (page && page->mode == RECORD && (fd == 1 || fd == 2) && is_pipe(fd)) said(bytes, n);
    WRITE(fd, n, syscall(SYS_write, fd, bytes, h_), syscall(SYS_write, fd, bytes, n));
}
static ssize_t write_at(int fd, const void *bytes, size_t n, off_t at) {
    WRITE(fd, n, syscall(SYS_pwrite64, fd, bytes, h_, at), syscall(SYS_pwrite64, fd, bytes, n, at));
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return write_at(fd, bytes, n, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at) { return write_at(fd, bytes, n, at); }
ssize_t writev(int fd, const struct iovec *parts, int n) {
    WRITE(fd, n, (void)h_, syscall(SYS_writev, fd, parts, n));
}
ssize_t sendfile(int to, int from, off_t *at, size_t n) {
    WRITE(to, n, syscall(SYS_sendfile, to, from, at, h_), syscall(SYS_sendfile, to, from, at, n));
}
ssize_t sendfile64(int to, int from, off_t *at, size_t n) { return sendfile(to, from, at, n); }
ssize_t copy_file_range(int from, off_t *a, int to, off_t *b, size_t n, unsigned flags) {
    WRITE(to, n, (void)h_, syscall(SYS_copy_file_range, from, a, to, b, n, flags));
}

/* numpy writes arrays with the C library's streams, whose own calls never reach `write` above. */
size_t fwrite(const void *bytes, size_t size, size_t n, FILE *stream) {
    static size_t (*real)(const void *, size_t, size_t, FILE *);
    if (!real) real = dlsym(RTLD_NEXT, "fwrite");
    int error, fd = page && page->mode != OFF ? fileno(stream) : -1;
    if (fd > 2) {
        long left = before_writing(fd, size * n, &error);
        if (left >= 0) { real(bytes, 1, left, stream); fflush(stream); die(); }
        if (error) { errno = error; return 0; }
    }
    return real(bytes, size, n, stream);
}

int fclose(FILE *stream) {
    static int (*real)(FILE *);
    if (!real) real = dlsym(RTLD_NEXT, "fclose");
    if (page && page->mode == RECORD) { fflush(stream); closing(fileno(stream)); }
    return real(stream);
}

#define FOPEN(function) \
    FILE *function(const char *name, const char *mode) { \
        char path[PATH_MAX]; \
        static FILE *(*real)(const char *, const char *); \
        if (!real) real = dlsym(RTLD_NEXT, #function); \
        if (!path_at(AT_FDCWD, name, path)) return real(name, mode); \
        int is_writing = strpbrk(mode, "wa+") != NULL; \
        int error = failing(is_writing ? "open" : "open to read", path, is_writing); \
        if (error) { errno = error; return NULL; } \
        lock(); \
        int existed = inode_of(path) != 0; \
        FILE *found = real(name, mode); \
        if (found && is_recording() && is_writing) note(existed ? "dirty" : "create", inode_of(path), path, "", 0); \
        unlock(); \
        return found; }
FOPEN(fopen) FOPEN(fopen64)

/* ---- sync */

static int synced(int number, int fd) {
    char path[PATH_MAX];
    struct stat about;
    int found = path_of(fd, path);
    if (!found) return syscall(number, fd);
    FAIL_IF("fsync", path, 1);
    lock();
    int result = syscall(number, fd);
    if (is_recording() && !result && !syscall(SYS_fstat, fd, &about))
        note("sync", about.st_ino, found == 2 ? "" : path, "", S_ISDIR(about.st_mode) ? 0 : snapshot_of(fd));
    unlock();
    return result;
}
int fsync(int fd) { return synced(SYS_fsync, fd); }
int fdatasync(int fd) { return synced(SYS_fdatasync, fd); }

int msync(void *at, size_t size, int flags) {
    for (int i = 0; page && page->mode != OFF && i < MAPPED; i++) {
        char *where = at, *from = mapped[i].from;
        if (!from || where < from || where >= from + mapped[i].size) continue;
        FAIL_IF("msync", mapped[i].path, 1);
        lock();
        int result = syscall(SYS_msync, at, size, flags);
        int fd = is_recording() && !result ? syscall(SYS_openat, AT_FDCWD, mapped[i].path, O_RDONLY, 0) : -1;
        if (fd >= 0) {
            note("sync", inode_of_open(fd), mapped[i].path, "", snapshot_of(fd));
            syscall(SYS_close, fd);
        }
        unlock();
        return result;
    }
    return syscall(SYS_msync, at, size, flags);
}

/* ---- size */

static int resized(const char *what, int fd, off_t from, off_t size) {
    char path[PATH_MAX];
    if (path_of(fd, path)) {
        FAIL_IF(what, path, 1);
        if (is_recording()) { lock(); note("dirty", inode_of_open(fd), path, "", 0); unlock(); }
    }
    return what[0] == 't' ? syscall(SYS_ftruncate, fd, size) : syscall(SYS_fallocate, fd, 0, from, size);
}
int ftruncate(int fd, off_t size) { return resized("truncate", fd, 0, size); }
int ftruncate64(int fd, off_t size) { return resized("truncate", fd, 0, size); }
int posix_fallocate(int fd, off_t from, off_t size) { return resized("fallocate", fd, from, size) ? errno : 0; }
int posix_fallocate64(int fd, off_t from, off_t size) { return posix_fallocate(fd, from, size); }
int fallocate(int fd, int mode, off_t from, off_t size) { (void)mode; return resized("fallocate", fd, from, size); }
int fallocate64(int fd, int mode, off_t from, off_t size) { (void)mode; return resized("fallocate", fd, from, size); }

/* ---- names */

int linkat(int folder, const char *name, int other_folder, const char *other, int flags) {
    char path[PATH_MAX], second[PATH_MAX];
    int is_one = path_at(folder, name, path), is_two = path_at(other_folder, other, second);
    if (!is_one || !is_two) return syscall(SYS_linkat, folder, name, other_folder, other, flags);
    FAIL_IF("link", second, 1);
    lock();
    int result = syscall(SYS_linkat, folder, name, other_folder, other, flags);
    if (is_recording() && !result) note("link", inode_of(second), path, second, 0);
    unlock();
    return result;
}
int link(const char *name, const char *other) { return linkat(AT_FDCWD, name, AT_FDCWD, other, 0); }

/* safetensors renames its file by a system call of its own: the names in a finished folder tell. */
static void note_names(const char *folder) {
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *names = opendir(folder);
    while (names && (entry = readdir(names)))
        if (entry->d_type == DT_REG && snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < PATH_MAX)
            note("seen", entry->d_ino, path, "", 0);
    if (names) closedir(names);
}

int renameat2(int folder, const char *name, int other_folder, const char *other, unsigned flags) {
    char path[PATH_MAX], second[PATH_MAX];
    int is_one = path_at(folder, name, path), is_two = path_at(other_folder, other, second);
    if (!is_one || !is_two) return syscall(SYS_renameat2, folder, name, other_folder, other, flags);
    FAIL_IF("rename", second, 1);
    lock();
    if (is_recording()) note_names(path);
    int result = syscall(SYS_renameat2, folder, name, other_folder, other, flags);
    if (is_recording() && !result) note("rename", inode_of(second), path, second, 0);
    unlock();
    return result;
}
int renameat(int a, const char *name, int b, const char *other) { return renameat2(a, name, b, other, 0); }
int rename(const char *name, const char *other) { return renameat2(AT_FDCWD, name, AT_FDCWD, other, 0); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!path_at(folder, name, path)) return syscall(SYS_unlinkat, folder, name, flags);
    FAIL_IF(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path, 0);
    lock();
    int result = syscall(SYS_unlinkat, folder, name, flags);
    if (is_recording() && !result) note("unlink", 0, path, "", 0);
    unlock();
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!path_at(folder, name, path)) return syscall(SYS_mkdirat, folder, name, mode);
    FAIL_IF("mkdir", path, 1);
    lock();
    int result = syscall(SYS_mkdirat, folder, name, mode);
    if (is_recording() && !result) note("mkdir", inode_of(path), path, "", 0);
    unlock();
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
