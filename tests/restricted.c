/* System calls as they fail on file systems that lack something. LACKS names what is missing, below the folder BELOW:
 * links (hard links), folder-sync (fsync of a folder), file-sync (fsync of a file), locks (flock); stale: opening a file
 * whose name ends with STALE fails with ESTALE as often as STALE_TIMES says. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int lacks(const char *what) {
    const char *all = getenv("LACKS");
    return all != NULL && strstr(all, what) != NULL;
}

static int is_below(const char *path) {
    const char *folder = getenv("BELOW");
    return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_open_below(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int fail(int number) {
    errno = number;
    return -1;
}

int link(const char *from, const char *to) {
    if (lacks("links") && is_below(to)) return fail(EPERM);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "link"))(from, to);
}

int fsync(int file) {
    struct stat found;
    if (fstat(file, &found) == 0 && is_open_below(file)) {
        if (S_ISDIR(found.st_mode) && lacks("folder-sync")) return fail(EINVAL);
        if (!S_ISDIR(found.st_mode) && lacks("file-sync")) return fail(EINVAL);
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int flock(int file, int how) {
    if (lacks("locks") && is_open_below(file)) return fail(ENOLCK);
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(file, how);
}

static int is_stale(const char *path) {
    static int times = -1;
    const char *end = getenv("STALE");
    if (end == NULL || strlen(path) < strlen(end) || strcmp(path + strlen(path) - strlen(end), end) != 0) return 0;
    if (times < 0) times = atoi(getenv("STALE_TIMES"));
    return times > 0 && times-- > 0;
}

#define OPEN(name)                                                                                \
    int name(const char *path, int flags, ...) {                                                  \
        va_list more;                                                                             \
        va_start(more, flags);                                                                    \
        mode_t mode = va_arg(more, mode_t);                                                       \
        va_end(more);                                                                             \
        if (is_stale(path)) return fail(ESTALE);                                                  \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode);     \
    }

OPEN(open)
OPEN(open64)
