/* client/tools/command/output.c - output of commands: errors, JSON, text, progress. */
#include "client/tools/command/command.h"
#include "runtime/base/sl_text.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_CELLS 30u
#define NODES_SAID     8u /* running nodes that the error for a missing node lists */

int ctl_usage_error(const struct ctl *ctl, const char *format, ...)
{
    va_list arguments;
    char text[1024];
    va_start(arguments, format);
    (void)fprintf(stderr, "sluicectl %s: ", ctl->command->name);
    /* The analyser loses va_start when it checks several files in one run. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(text, sizeof text, format, arguments);
    ctl_print_bytes(stderr, text, strlen(text));
    (void)fprintf(stderr, "; see: sluicectl %s --help\n", ctl->command->name);
    va_end(arguments);
    return CTL_WRONG_USE;
}

static int exit_code_of(sl_err code)
{
    switch (code) {
    case SL_ERR_UNREACHABLE:
    case SL_ERR_TIMEOUT:
    case SL_ERR_FOREIGN:
    case SL_ERR_VERSION:
        return CTL_UNREACHABLE;
    case SL_ERR_INVALID:
    case SL_ERR_CONFIG:
        return CTL_WRONG_USE;
    default:
        return CTL_NO;
    }
}

/* Lists the running nodes of this user. It cannot look for them if a setting names directories. */
static void own_nodes_print(const struct ctl *ctl, FILE *out)
{
    char base[64], path[sizeof base + NAME_MAX + 2];
    uint32_t found = 0;
    (void)snprintf(base, sizeof base, "/dev/shm/sluice-%u", (unsigned)geteuid());
    if (strncmp(ctl->paths.shm_dir, base, strlen(base)) != 0 ||
        strrchr(ctl->paths.shm_dir, '/') != ctl->paths.shm_dir + strlen(base)) {
        return;
    }
    SL_AUTO(closedir) DIR *directory = opendir(base);
    for (struct dirent *entry = directory == NULL ? NULL : readdir(directory);
         entry != NULL && found < NODES_SAID; entry = readdir(directory)) {
        (void)snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
        if (entry->d_name[0] != '.' && ctl_registrar_lives(path)) {
            (void)fprintf(out, "%s%s", found == 0 ? "--instance selects the node; running: " : ", ",
                          entry->d_name);
            found++;
        }
    }
    (void)fputs(found > 0 ? "\n"
                          : "no node of this user runs here: start one with sluice-node start\n",
                out);
}

void ctl_no_node_print(const struct ctl *ctl, FILE *out)
{
    if (ctl_registrar_lives(ctl->paths.shm_dir)) {
        return; /* it runs but did not answer */
    }
    char dir[64];
    uint32_t owner = 0;
    if (sl_service_dir(sl_config_text(ctl->config, SL_SET_instance), dir, &owner) &&
        owner != geteuid()) {
        const struct passwd *user = getpwuid(owner);
        (void)fprintf(out, "%s belongs to user %s: run this command as that user, or as root\n",
                      dir, user != NULL ? user->pw_name : "unknown");
    } else {
        own_nodes_print(ctl, out);
    }
}

int ctl_failed(const struct ctl *ctl, const struct sl_error *why)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "sluicectl %s: %s (%s)\n", ctl->command->name, why->text,
                  sl_err_text(why->code));
    if (why->code == SL_ERR_UNREACHABLE && ctl->config != NULL) {
        ctl_no_node_print(ctl, stderr);
    }
    if (why->code == SL_ERR_PERMISSION && ctl->asks_as[0] != '\0') {
        (void)fprintf(
            stderr,
            "ran as user '%s', since this node belongs to that user, who must be able to open the "
            "file; standard input and output always work\n",
            ctl->asks_as);
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:s, s:s}", "error", sl_err_name(why->code), "text", why->text));
    }
    return exit_code_of(why->code);
}

void ctl_print_json(json_t *object)
{
    if (object != NULL) {
        (void)json_dumpf(object, stdout,
                         JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12) |
                             JSON_ENCODE_ANY);
        (void)fputc('\n', stdout);
        json_decref(object);
    }
}

json_t *ctl_json_u64(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *ctl_json_bytes(const char *bytes, size_t length)
{
    json_t *text = json_stringn(bytes, length);
    if (text != NULL) {
        return text;
    }
    char *hex = malloc(2 * length + 5);
    if (hex == NULL) {
        return json_null();
    }
    memcpy(hex, "hex:", 5);
    for (size_t i = 0; i < length; i++) {
        (void)snprintf(&hex[4 + 2 * i], 3, "%02x", (unsigned)(unsigned char)bytes[i]);
    }
    text = json_string(hex);
    free(hex);
    return text;
}

json_t *ctl_json_text(const char *text)
{
    return ctl_json_bytes(text, strlen(text));
}

size_t ctl_character_text(const char *text, size_t left, char out[CTL_CHARACTER_TEXT])
{
    size_t length = 0;
    bool plain = sl_text_is_plain(sl_text_next(text, left, &length)) && *text != '\\';
    memcpy(out, text, length);
    out[length] = '\0';
    for (size_t i = 0; !plain && i < length; i++) {
        (void)snprintf(out + 4 * i, 5, "\\x%02x", (unsigned char)text[i]);
    }
    return length;
}

void ctl_print_bytes(FILE *out, const char *bytes, size_t length)
{
    char text[CTL_CHARACTER_TEXT];
    while (length > 0) {
        size_t taken = ctl_character_text(bytes, length, text);
        (void)fputs(text, out);
        bytes += taken;
        length -= taken;
    }
}

int ctl_progress(const struct ctl *ctl, const char *value, bool *shown)
{
    if (strcmp(value, "auto") != 0 && strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
        return ctl_usage_error(ctl, "--progress must be auto, on or off");
    }
    *shown = strcmp(value, "on") == 0 || (strcmp(value, "auto") == 0 && isatty(STDERR_FILENO) == 1);
    return CTL_SUCCESS;
}

void ctl_progress_bar(uint64_t done, uint64_t total)
{
    static const char cells[] = "##############################..............................";
    uint32_t filled = (uint32_t)((double)done / (double)total * PROGRESS_CELLS);
    (void)fprintf(stderr, "\r[%.*s] %" PRIu64 "/%" PRIu64 "  ", (int)PROGRESS_CELLS,
                  &cells[PROGRESS_CELLS - filled], done, total);
}
