/* tests/fuzz/fuzz_directory.c - the cluster directory with a server that sends arbitrary bytes.
 *
 * The input is sent by the server after a valid greeting, cut at bytes 0xff: between the pieces the
 * directory runs, and gets queries and updates. Each lookup ends exactly once, and the directory
 * stays within its bounds. */
#include "ipc/msg/sl_cluster.h"
#include "runtime/net/directory/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SECOND SL_NS_PER_S

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    struct sl_directory *directory;
    uint64_t now_ns;
    int server;
    uint32_t asked, answered;
} bed;

static void on_found(void *context, uint64_t cookie, sl_err code,
                     const struct sl_directory_found *found, uint32_t count)
{
    (void)context;
    (void)cookie;
    SL_ASSERT(bed.answered < bed.asked);
    SL_ASSERT((code == SL_OK) == (found != NULL));
    bed.answered++;
    for (uint32_t i = 0; i < count; i++) {
        SL_ASSERT(found[i].holder_count <= SL_DIRECTORY_HOLDERS_MAX);
        for (uint32_t h = 0; h < found[i].holder_count; h++) {
            const struct sl_directory_member *member = found[i].holders[h];
            SL_ASSERT(sl_directory_member_check(member, NULL) == SL_OK);
            SL_ASSERT(strcmp(member->name, "me") != 0);
        }
    }
}

static char path[64];

static void path_remove(void)
{
    (void)unlink(path);
}

static int listener_make(char url[200])
{
    static int listener = -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (listener < 0) {
        (void)snprintf(path, sizeof(path), "/tmp/sl-fuzz-directory-%d", (int)getpid());
        (void)unlink(path);
        (void)strcpy(address.sun_path, path);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        SL_ASSERT(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
        SL_ASSERT(listen(listener, 4) == 0 && atexit(path_remove) == 0);
    }
    (void)snprintf(url, 200, "unix://%s", path);
    return listener;
}

/* Runs the directory, and discards the bytes that it sends. */
static void turn(int listener)
{
    static char heard[65536];
    for (uint32_t i = 0; i < 4; i++) {
        sl_directory_step(bed.directory, bed.now_ns);
        if (bed.server < 0) {
            bed.server = accept(listener, NULL, NULL);
        }
        while (bed.server >= 0 && recv(bed.server, heard, sizeof(heard), MSG_DONTWAIT) > 0) {
        }
    }
}

static void say(int listener, const void *bytes, size_t length)
{
    if (bed.server >= 0 && length > 0) {
        (void)!send(bed.server, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    turn(listener);
}

static void ask_and_tell(uint32_t round)
{
    static const uint64_t ids[] = {1, 2, 3};
    struct sl_directory_lookup lookup = {.ids = ids,
                                         .count = SL_COUNT(ids),
                                         .now_ns = bed.now_ns,
                                         .deadline_ns = bed.now_ns + SECOND / 2,
                                         .cookie = round};
    bed.asked += sl_directory_lookup(bed.directory, &lookup) == SL_OK;
    (void)sl_directory_publish(bed.directory, round + 1, round % 2 == 0);
}

/* A member's address consists of a number and a port, whatever else the server sent. */
static void members_check(void)
{
    const struct sl_directory_member *members = NULL;
    uint32_t count = sl_directory_members(bed.directory, &members);
    SL_ASSERT(count <= SL_DIRECTORY_MEMBERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        bool any = false;
        SL_ASSERT(sl_directory_member_check(&members[i], NULL) == SL_OK);
        SL_ASSERT(!sl_cluster_address(members[i].control, &any) ||
                  strspn(members[i].control, "0123456789abcdefABCDEF.:[]") ==
                      strlen(members[i].control));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char url[200];
    struct sl_directory_options options;
    struct sl_directory_stats stats;
    struct sl_directory_member self = {.name = "me", .incarnation = 1};
    int listener = listener_make(url);
    sl_directory_options_init(&options);
    options.kind = SL_DIRECTORY_REDIS;
    options.url = url;
    options.timeout_ns = SECOND;
    options.events.found = on_found;
    memset(&bed, 0, sizeof(bed));
    bed.server = -1;
    bed.now_ns = SECOND;
    SL_ASSERT(sl_directory_open(&options, &bed.directory, NULL) == SL_OK);
    SL_ASSERT(sl_directory_announce(bed.directory, &self, NULL) == SL_OK);
    turn(listener);
    say(listener, "+PONG\r\n", 7);
    for (uint32_t round = 0; size > 0; round++) {
        const uint8_t *cut = memchr(data, 0xff, size);
        size_t length = cut == NULL ? size : (size_t)(cut - data);
        say(listener, data, length);
        ask_and_tell(round);
        turn(listener);
        members_check();
        size_t used = length + (cut != NULL);
        data += used;
        size -= used;
    }
    sl_directory_stats(bed.directory, &stats);
    SL_ASSERT(stats.waiting <= 2 * SL_DIRECTORY_QUEUE_MAX);
    if (bed.server >= 0) {
        (void)close(bed.server);
    }
    bed.server = -1;
    bed.now_ns += 2 * SECOND; /* the connection has ended, or was silent for too long */
    sl_directory_step(bed.directory, bed.now_ns);
    sl_directory_step(bed.directory, bed.now_ns);
    SL_ASSERT(bed.answered == bed.asked);
    sl_directory_close(&bed.directory);
    for (int left = accept(listener, NULL, NULL); left >= 0;) { /* not accepted yet */
        (void)close(left);
        left = accept(listener, NULL, NULL);
    }
    return 0;
}
