/* client/tools/ctl/main.c - sluicectl: the list of commands, and main. */
#include "client/tools/bench/commands.h"
#include "client/tools/ctl/commands.h"
#include "client/tools/top/top.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* As --help lists them. */
/* clang-format off */
static const struct ctl_command *const commands[] = {
    &ctl_put,           &ctl_get,      &ctl_exists, &ctl_prefetch, &ctl_rm,     &ctl_ls,
    &ctl_stat,          &ctl_explain,  &ctl_flush,  &ctl_status, &ctl_top,    &ctl_metrics,   &ctl_tiers,  &ctl_pools,
    &ctl_contributions, &ctl_nodes,    &ctl_keygen, &ctl_trace,    &ctl_keys,   &ctl_messages,
    &ctl_config,        &ctl_workload, &ctl_bench,  &ctl_doctor,   &ctl_replay,
    &ctl_session,  &ctl_events, &ctl_formats,  &ctl_dirs,
};
/* clang-format on */

static void usage(FILE *out)
{
    (void)fprintf(out, "usage: sluicectl COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < SL_COUNT(commands); i++) {
        (void)fprintf(out, "  %-13s  %s\n", commands[i]->name, commands[i]->summary);
    }
    (void)fprintf(
        out,
        "\nsluicectl COMMAND --help explains a command. Commands address the node 'default', or "
        "the one named by --instance NAME.\n"
        "Exit codes: 0 success, 1 no, 2 wrong use, 3 node not reachable.\n"
        "\n"
        "To see a node at work: sluice-node start, sluicectl workload | sluicectl replay - "
        "--speed 4, and in another terminal sluicectl top.\n");
}

static int run(struct ctl *ctl, int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return CTL_WRONG_USE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2) { /* help COMMAND is COMMAND --help */
        static char option[] = "--help";
        argv[1] = argv[2];
        argv[2] = option;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return CTL_SUCCESS;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("sluicectl %s\n", SL_VERSION);
        return CTL_SUCCESS;
    }
    for (size_t i = 0; i < SL_COUNT(commands); i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            ctl->command = commands[i];
        }
    }
    if (ctl->command == NULL) {
        (void)fputs("sluicectl: unknown command '", stderr);
        ctl_print_bytes(stderr, argv[1], strlen(argv[1]));
        (void)fputs("'\n", stderr);
        usage(stderr);
        return CTL_WRONG_USE;
    }
    int code;
    return ctl->command->run != NULL ? ctl->command->run(ctl, argc - 1, argv + 1)
           : ctl_parse(ctl, argc - 1, argv + 1, NULL, 0, &code)
               ? ctl_query(ctl, ctl->command->ask, NULL)
               : code;
}

int main(int argc, char **argv)
{
    struct ctl ctl = {0};
    (void)signal(SIGPIPE, SIG_DFL);  /* `sluicectl ls | head` ends quietly */
    (void)signal(SIGXFSZ, SIG_IGN);  /* a write beyond the file size limit returns an error */
    for (int fd = 0; fd < 3; fd++) { /* files must not get the number of a closed standard stream */
        (void)(fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY));
    }
    int code = run(&ctl, argc, argv);
    for (uint32_t i = 0; i < ctl.setting_count; i++) {
        free(ctl.setting_texts[i]);
    }
    sl_config_destroy(&ctl.config);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        (void)fprintf(stderr, "sluicectl: cannot write to standard output\n");
        return code == CTL_SUCCESS ? CTL_NO : code;
    }
    return code;
}
