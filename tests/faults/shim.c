/* A layer between a process and the files below one folder: LD_PRELOAD. It writes each change to a journal, from which `disk.py` tells what a
 * power cut leaves behind, and fails on demand. It does nothing until `shim_begin` is called in the process. The calls of a dynamically
 * linked SQLite and of Python pass through here; a test compares the journal with the folder, so that nothing passes by.
 *
 * One lock is held from a change to its record, so the order of the records is that of the changes. A process that is killed in between has
 * made a change without a record: as if it had never been made, which nobody was told either. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Shared with the test, which changes it at any time: `Control` in shim.py has the same fields. */
struct control {
    int64_t operations;  /* changes and syncs so far */
    int64_t kill_at;     /* die before this operation (counted from 1); 0: never */
    int64_t room;        /* bytes by which files may still grow; -1: any */
    int64_t read_only;   /* 1: every change is refused */
    int64_t syncs;       /* so far */
    int64_t fail_sync;   /* the sync that fails (counted from 1); 0: none */
    int64_t writes;      /* so far */
    int64_t fail_write;  /* the write that fails; 0: none */
    int64_t short_every; /* every so many-th write is cut short; 0: none */
    int64_t reads;       /* so far */
    int64_t fail_read;   /* the read that fails; 0: none */
    int64_t renames;     /* so far */
    int64_t fail_rename; /* the rename that fails; 0: none */
    int64_t links;       /* so far */
    int64_t fail_link;   /* the link that fails; 0: none; -1: the file system has no links */
};

struct record {
    uint64_t kind, inode, at, first, second; /* lengths of the two texts that follow */
};

#define FILES 65536

static struct control *control;
static int journal = -1;
static char root[PATH_MAX];
static size_t root_length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char ours[FILES];

#define REAL(name) ({ static typeof(&name) real; if (!real) real = (typeof(&name))dlsym(RTLD_NEXT, #name); real; })

int shim_begin(const char *folder, const char *journal_path, const char *control_path) {
    int file = REAL(open)(control_path, O_RDWR | O_CLOEXEC);
    if (file < 0) return -1;
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REAL(close)(file);
    if (control == MAP_FAILED) { control = NULL; return -1; }
    root_length = strlen(folder);
    memcpy(root, folder, root_length + 1);
    journal = REAL(open)(journal_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return journal < 0 ? -1 : 0;
}

static int below(const char *path) {
    return journal >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The absolute path of a name in a folder, if it is one of ours. */
static int resolve(int folder, const char *name, char *path) {
    if (journal < 0 || !name) return 0;
    if (name[0] == '/') {
        if (strlen(name) >= PATH_MAX) return 0;
        strcpy(path, name);
    } else {
        char link[64];
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, path, PATH_MAX - 1);
        if (length < 0 || length + strlen(name) + 2 > PATH_MAX) return 0;
        path[length] = '/';
        strcpy(path + length + 1, name);
    }
    return below(path);
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    control->operations++;
    if (control->operations == control->kill_at) { kill(getpid(), SIGKILL); for (;;) pause(); }
}

static void leave(void) { int kept = errno; pthread_mutex_unlock(&lock); errno = kept; }

static void note(char kind, uint64_t inode, uint64_t at, const void *first, size_t first_length, const char *second) {
    int kept = errno;
    struct record head = {(uint64_t)kind, inode, at, first_length, second ? strlen(second) : 0};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)first, first_length}, {(void *)second, head.second}};
    size_t whole = sizeof head + first_length + head.second;
    ssize_t done = syscall(SYS_writev, journal, parts, 3);
    if (done < 0 || (size_t)done != whole) { static const char say[] = "shim: the journal cannot be written\n"; syscall(SYS_write, 2, say, sizeof say - 1); _exit(99); }
    errno = kept;
}

static uint64_t inode_of(int file) { struct stat found; return fstat(file, &found) ? 0 : found.st_ino; }
static int64_t size_of(int file) { struct stat found; return fstat(file, &found) ? 0 : found.st_size; }
static int is_ours(int file) { return journal >= 0 && file >= 0 && file < FILES && ours[file]; }

static int refuse(int number) { errno = number; return -1; }

/* Counts one more, and tells whether it is the one that fails. */
static int fails(int64_t *count, int64_t which) {
    pthread_mutex_lock(&lock);
    int found = ++*count == which;
    pthread_mutex_unlock(&lock);
    return found;
}

/* opening and closing */

static int open_ours(int folder, const char *name, int flags, mode_t mode, const char *path) {
    int changes = flags & (O_CREAT | O_TRUNC), writes = (flags & O_ACCMODE) != O_RDONLY;
    if (control->read_only && (writes || changes)) return refuse(EROFS);
    if (!changes) {
        int file = (int)syscall(SYS_openat, folder, name, flags, mode);
        if (file >= 0 && file < FILES) ours[file] = 1;
        return file;
    }
    enter();
    struct stat before;
    int known = !lstat(path, &before);
    if (!known && control->room == 0) { leave(); return refuse(ENOSPC); }
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (file >= 0) {
        if (file < FILES) ours[file] = 1;
        if (!known) note('C', inode_of(file), 0, path, strlen(path), NULL);
        else if (flags & O_TRUNC) {
            if (control->room >= 0) control->room += before.st_size;
            note('T', inode_of(file), 0, NULL, 0, NULL);
        }
    }
    leave();
    return file;
}

static int open_any(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (resolve(folder, name, path)) return open_ours(folder, name, flags, mode, path);
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (file >= 0 && file < FILES) ours[file] = 0;
    return file;
}

#define MODE ({ mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } mode; })
int open(const char *name, int flags, ...) { return open_any(AT_FDCWD, name, flags, MODE); }
int open64(const char *name, int flags, ...) { return open_any(AT_FDCWD, name, flags, MODE); }
int openat(int folder, const char *name, int flags, ...) { return open_any(folder, name, flags, MODE); }
int openat64(int folder, const char *name, int flags, ...) { return open_any(folder, name, flags, MODE); }
int creat(const char *name, mode_t mode) { return open_any(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int file) {
    if (file >= 0 && file < FILES) ours[file] = 0;
    return (int)syscall(SYS_close, file);
}

/* writing */

static ssize_t write_ours(int file, const void *data, size_t size, off_t at, int moves) {
    if (control->read_only) return refuse(EROFS);
    enter();
    if (++control->writes == control->fail_write) { leave(); return refuse(EIO); }
    if (control->short_every && size > 1 && control->writes % control->short_every == 0) size /= 2;
    int64_t before = size_of(file);
    if (moves) at = fcntl(file, F_GETFL) & O_APPEND ? before : lseek(file, 0, SEEK_CUR);
    int64_t grows = (int64_t)(at + size) - before;
    if (control->room >= 0 && grows > control->room) {
        if (grows - control->room >= (int64_t)size) { leave(); return refuse(ENOSPC); }
        size -= grows - control->room;
        grows = control->room;
    }
    ssize_t done = moves ? syscall(SYS_write, file, data, size) : syscall(SYS_pwrite64, file, data, size, at);
    if (done > 0) {
        if (control->room >= 0 && grows > 0) control->room -= grows;
        note('W', inode_of(file), at, data, done, NULL);
    }
    leave();
    return done;
}

ssize_t write(int file, const void *data, size_t size) {
    return is_ours(file) ? write_ours(file, data, size, 0, 1) : syscall(SYS_write, file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return is_ours(file) ? write_ours(file, data, size, at, 0) : syscall(SYS_pwrite64, file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return pwrite(file, data, size, at); }

/* The first part is a short write: callers go on with the rest. */
ssize_t writev(int file, const struct iovec *parts, int count) {
    if (!is_ours(file)) return syscall(SYS_writev, file, parts, count);
    for (int i = 0; i < count; i++) if (parts[i].iov_len) return write_ours(file, parts[i].iov_base, parts[i].iov_len, 0, 1);
    return 0;
}
ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    if (!is_ours(file)) return REAL(pwritev)(file, parts, count, at);
    for (int i = 0; i < count; i++) if (parts[i].iov_len) return write_ours(file, parts[i].iov_base, parts[i].iov_len, at, 0);
    return 0;
}
ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) { return pwritev(file, parts, count, at); }

/* Whoever copies by these can do without them. */
ssize_t sendfile(int to, int from, off_t *at, size_t count) {
    return is_ours(to) ? refuse(ENOSYS) : syscall(SYS_sendfile, to, from, at, count);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t count) { return sendfile(to, from, at, count); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *where, size_t count, unsigned flags) {
    return is_ours(to) ? refuse(EXDEV) : syscall(SYS_copy_file_range, from, at, to, where, count, flags);
}
int posix_fallocate(int file, off_t at, off_t size) { return is_ours(file) ? EOPNOTSUPP : REAL(posix_fallocate)(file, at, size); }
int posix_fallocate64(int file, off64_t at, off64_t size) { return posix_fallocate(file, at, size); }

int ftruncate(int file, off_t size) {
    if (!is_ours(file)) return (int)syscall(SYS_ftruncate, file, size);
    if (control->read_only) return refuse(EROFS);
    enter();
    int64_t grows = size - size_of(file);
    if (control->room >= 0 && grows > control->room) { leave(); return refuse(ENOSPC); }
    int done = (int)syscall(SYS_ftruncate, file, size);
    if (!done) {
        if (control->room >= 0) control->room -= grows;
        note('T', inode_of(file), size, NULL, 0, NULL);
    }
    leave();
    return done;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int truncate(const char *name, off_t size) {
    char path[PATH_MAX];
    if (!resolve(AT_FDCWD, name, path)) return (int)syscall(SYS_truncate, name, size);
    int file = open(name, O_WRONLY | O_CLOEXEC);
    if (file < 0) return -1;
    int done = ftruncate(file, size);
    close(file);
    return done;
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

/* reading: a read that fails takes nothing */

static int read_fails(int file) { return is_ours(file) && fails(&control->reads, control->fail_read); }
ssize_t read(int file, void *data, size_t size) {
    return read_fails(file) ? refuse(EIO) : syscall(SYS_read, file, data, size);
}
ssize_t pread(int file, void *data, size_t size, off_t at) {
    return read_fails(file) ? refuse(EIO) : syscall(SYS_pread64, file, data, size, at);
}
ssize_t pread64(int file, void *data, size_t size, off64_t at) { return pread(file, data, size, at); }
ssize_t readv(int file, const struct iovec *parts, int count) {
    return read_fails(file) ? refuse(EIO) : syscall(SYS_readv, file, parts, count);
}
ssize_t preadv(int file, const struct iovec *parts, int count, off_t at) { return read_fails(file) ? refuse(EIO) : REAL(preadv)(file, parts, count, at); }
ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t at) { return preadv(file, parts, count, at); }

/* syncing */

static int sync_ours(int file, long call) {
    enter();
    control->syncs++;
    if (control->read_only || control->syncs == control->fail_sync) {
        if (!control->read_only) note('F', inode_of(file), 0, NULL, 0, NULL);
        leave();
        return control->read_only ? 0 : refuse(EIO);
    }
    /* The disk of the machine that runs the tests need not take it: what counts is the record. */
    (void)call;
    note('S', inode_of(file), 0, NULL, 0, NULL);
    leave();
    return 0;
}
int fsync(int file) { return is_ours(file) ? sync_ours(file, SYS_fsync) : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return is_ours(file) ? sync_ours(file, SYS_fdatasync) : (int)syscall(SYS_fdatasync, file); }

/* names */

/* `last`: the name that there is afterwards. */
#define NAMED(kind, check_room, call, first, second, last) do { \
    if (control->read_only) return refuse(EROFS); \
    enter(); \
    if (check_room && control->room == 0) { leave(); return refuse(ENOSPC); } \
    int done = (call); \
    if (!done) { struct stat found; note(kind, lstat(last, &found) ? 0 : found.st_ino, 0, first, strlen(first), second); } \
    leave(); \
    return done; \
} while (0)

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!resolve(folder, name, path)) return (int)syscall(SYS_mkdirat, folder, name, mode);
    NAMED('M', 1, (int)syscall(SYS_mkdirat, folder, name, mode), path, NULL, path);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

static void give_back(const char *path) {
    struct stat found;
    if (control->room >= 0 && !lstat(path, &found) && S_ISREG(found.st_mode) && found.st_nlink == 1) control->room += found.st_size;
}

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    if (!resolve(folder, name, path)) return (int)syscall(SYS_unlinkat, folder, name, flags);
    NAMED(flags & AT_REMOVEDIR ? 'D' : 'U', 0, (give_back(path), (int)syscall(SYS_unlinkat, folder, name, flags)), path, NULL, path);
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    struct stat found;
    return lstat(name, &found) ? -1 : S_ISDIR(found.st_mode) ? rmdir(name) : unlink(name);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int old_ours = resolve(from_folder, from, old), new_ours = resolve(to_folder, to, new);
    if (!old_ours && !new_ours) return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (!old_ours || !new_ours || flags & ~RENAME_NOREPLACE) return refuse(EXDEV);
    if (fails(&control->renames, control->fail_rename)) return refuse(EIO);
    NAMED('R', 0, (give_back(new), (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)), old, new, new);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) { return renameat2(from_folder, from, to_folder, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char old[PATH_MAX], new[PATH_MAX];
    if (!resolve(to_folder, to, new)) return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (!resolve(from_folder, from, old)) return refuse(EXDEV);
    if (control->fail_link < 0) return refuse(EPERM);
    if (fails(&control->links, control->fail_link)) return refuse(EIO);
    NAMED('L', 0, (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags), old, new, new);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* room */

static void less(struct statvfs *found) {
    if (control && control->room >= 0) {
        unsigned long size = found->f_frsize ? found->f_frsize : 4096;
        found->f_bavail = found->f_bfree = control->room / size;
    }
}
int statvfs(const char *name, struct statvfs *found) {
    char path[PATH_MAX];
    int done = REAL(statvfs)(name, found);
    if (!done && resolve(AT_FDCWD, name, path)) less(found);
    return done;
}
int statvfs64(const char *name, struct statvfs64 *found) { return statvfs(name, (struct statvfs *)found); }
int fstatvfs(int file, struct statvfs *found) {
    int done = REAL(fstatvfs)(file, found);
    if (!done && is_ours(file)) less(found);
    return done;
}
int fstatvfs64(int file, struct statvfs64 *found) { return fstatvfs(file, (struct statvfs *)found); }
