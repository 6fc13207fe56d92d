/* client/supervise/main.c - the program sluice-supervise. */
#include "client/supervise/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct sl_error why = {0};
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("sluice-supervise %s\n", SL_VERSION);
        return 0;
    }
    bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
    char *end = NULL;
    unsigned long pid = argc == 5 ? strtoul(argv[4], &end, 10) : 0;
    if (help || argc != 5 || strcmp(argv[1], "watch") != 0 || *end != '\0' || pid == 0 ||
        pid > INT32_MAX) {
        (void)fprintf(
            help ? stdout : stderr,
            "usage: sluice-supervise watch RUNTIME_DIR SHM_DIR SCRIPT_PID\n\n"
            "Tells the supervisor's script, which starts it, what happens to its actors: a "
            "line an event on\nstandard output, a line a command on standard input. "
            "client/supervise/watch.h has both.\n");
        return help ? 0 : 2;
    }
    const struct sup_watch_options options = {
        .runtime_dir = argv[2], .shm_dir = argv[3], .script_pid = (uint32_t)pid};
    if (sup_watch(&options, &why) != SL_OK) {
        (void)fprintf(stderr, "sluice-supervise: %s\n", why.text);
        return 1;
    }
    return 0;
}
