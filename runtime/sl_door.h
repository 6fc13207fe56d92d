/* runtime/sl_door.h - a socket at which a process serves others of its user: RUNTIME_DIR/KIND.PID.NUMBER
 * (0600, in a directory of 0700), for packets. */
#ifndef SL_DOOR_H
#define SL_DOOR_H

#include "runtime/sl_error.h"

#define SL_DOOR_PATH_BYTES 108u /* of a socket's address */

struct sl_door {
    int fd; /* listens; -1: closed */
    uint64_t number;
    char path[SL_DOOR_PATH_BYTES];
};

/* Listens under this number, or a random one where it is 0; sockets of this kind that dead processes left in the directory, finished or not
 * (KIND-PID.NUMBER), are removed. Errors: SL_ERR_INVALID (runtime_dir is too long for a socket),
 * SL_ERR_NOT_FOUND (it is not there), SL_ERR_OS. */
sl_err sl_door_open(const char *runtime_dir, const char *kind, uint64_t number, struct sl_door *out,
                    struct sl_error *why);
void sl_door_close(struct sl_door *door); /* also one that is closed */

/* Where process pid listens. Errors: SL_ERR_INVALID (too long). */
sl_err sl_door_path(const char *runtime_dir, const char *kind, uint32_t pid, uint64_t number,
                    char out[SL_DOOR_PATH_BYTES], struct sl_error *why);
int sl_door_socket(void); /* close-on-exec, non-blocking; -1: errno says why */
/* Gives 0, or the reason: EAGAIN when too many wait there until deadline_ns (monotonic). */
int sl_door_connect(int fd, const char *path, uint64_t deadline_ns);
/* Whether the kernel says that the other side is of this user. */
bool sl_door_same_user(int fd);
/* Waits until something can be done with fd, or other_fd (-1: none) is readable. False: neither by
 * the deadline, or the other. */
bool sl_door_wait(int fd, short events, int other_fd, uint64_t deadline_ns);

#endif
