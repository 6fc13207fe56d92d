/* tests/fuzz/fuzz_http.c - requests as they arrive at a connection of the HTTP server, one behind
 * another. What is accepted has one length at most, lines that end in one way, and a Host. */
#include "client/exporter/http_input.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

static bool charge(void *context, uint64_t room)
{
    (void)context;
    return room <= 64 * SL_KIB;
}

static void head_check(const struct mc_head *head)
{
    uint32_t lengths = 0, hosts = 0;
    for (uint32_t i = 0; i < head->field_count; i++) {
        const char *name = head->fields[i].name;
        lengths += strcasecmp(name, "Content-Length") == 0;
        lengths += strcasecmp(name, "Transfer-Encoding") == 0;
        hosts += strcasecmp(name, "Host") == 0;
        SL_ASSERT(name[0] != '\0' && strpbrk(name, " \t\r\n:") == NULL);
        SL_ASSERT(strpbrk(head->fields[i].value, "\r\n") == NULL);
    }
    SL_ASSERT(lengths == (uint32_t)head->has_length + (uint32_t)head->chunked && lengths <= 1);
    SL_ASSERT(hosts == 1 || (hosts == 0 && head->http_1_0));
    SL_ASSERT(head->path[0] == '/' && strpbrk(head->path, " \t\r\n?#") == NULL);
    SL_ASSERT(head->method[0] != '\0' && strpbrk(head->method, " \t\r\n") == NULL);
    SL_ASSERT(head->arguments <= head->arguments_end);
    (void)mc_head_argument(head, "key");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    int pair[2];
    static struct mc_input input;
    SL_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    SL_ASSERT(send(pair[1], bytes, length_bytes, MSG_NOSIGNAL) == (ssize_t)length_bytes);
    SL_ASSERT(shutdown(pair[1], SHUT_WR) == 0);
    input = (struct mc_input){.fd = pair[0], .charge = charge};
    struct mc_refusal refusal = {0};
    enum mc_read end = MC_READ_FINE;
    size_t requests = 0;
    while (end == MC_READ_FINE) {
        end = mc_head_read(&input, &refusal);
        if (end == MC_READ_FINE) {
            head_check(&input.head);
            end = mc_body_read(&input, requests++ % 2 == 0, &refusal);
        }
        SL_ASSERT((end == MC_READ_REFUSED) == (refusal.status >= 400));
        SL_ASSERT(requests <= length_bytes);
        mc_input_next(&input);
    }
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 0;
}
