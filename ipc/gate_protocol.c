/* ipc/gate_protocol.c - see gate_protocol.h. */
#include "ipc/gate_protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union descriptor {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static ssize_t message_send(int socket_fd, const void *packet, size_t length_bytes, int fd,
                            int flags)
{
    union descriptor control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = length_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(int));
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

static ssize_t message_take(int socket_fd, void *packet, size_t room_bytes, int flags, int *fd,
                            int *message_flags)
{
    union descriptor control = {.bytes = {0}};
    struct iovec part = {.iov_base = packet, .iov_len = room_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t got = 0;
    *fd = -1;
    do {
        got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | flags);
    } while (got < 0 && errno == EINTR);
    const struct cmsghdr *head = /* also with a packet of no bytes */
        got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(fd, CMSG_DATA(head), sizeof(int));
    }
    *message_flags = message.msg_flags;
    return got;
}

int sl_gate_packet_send(int socket_fd, const void *packet, size_t length_bytes, int fd)
{
    ssize_t sent = message_send(socket_fd, packet, length_bytes, fd, 0);
    return sent == (ssize_t)length_bytes ? 0
           : sent >= 0                   ? EPROTO
           : errno == ECONNRESET         ? EPIPE
                                         : errno;
}

int sl_gate_packet_take(int socket_fd, void *packet, size_t length_bytes, int *fd)
{
    int flags = 0;
    ssize_t got = message_take(socket_fd, packet, length_bytes, 0, fd, &flags);
    if (got < 0) {
        return errno == ECONNRESET ? EPIPE : errno;
    }
    if (got == (ssize_t)length_bytes && (flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        return 0;
    }
    bool no_room = got == (ssize_t)length_bytes && (flags & MSG_TRUNC) == 0 && *fd < 0;
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
    return got == 0 ? EPIPE : no_room ? EMFILE : EPROTO;
}
