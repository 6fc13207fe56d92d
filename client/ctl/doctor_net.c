/* client/ctl/doctor_net.c - sluicectl doctor: NICs, ports, the cluster directory. What there is of
 * NICs is read from sysfs, so no library has to be there for it. */
#include "client/ctl/devices.h"
#include "client/ctl/doctor.h"
#include "client/ctl/nics.h"
#include "client/metrics/at.h"

#include "ipc/sl_cluster.h"
#include "runtime/directory/options.h"
#include "runtime/sl_address.h"
#include "runtime/sl_parse.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MTU_SMALL 4200 /* a path MTU of 4096 and its headers fit */

static void port_check_nic(struct doctor *doctor, const struct sl_nic *nic, bool wanted)
{
    char speed[32], socket[24] = "";
    enum doctor_level bad = wanted ? DOCTOR_FAIL : DOCTOR_WARN;
    if (nic->place.numa_node >= 0) {
        (void)snprintf(socket, sizeof(socket), ", socket %d", nic->place.numa_node);
    }
    if (!sl_nic_is_active(nic)) {
        doctor_say(doctor, bad, "nic", "connect it, or ip link set DEVICE up", "%s: state '%s'",
                   nic->name, nic->state);
        return;
    }
    bool usable = sl_nic_is_usable(nic);
    doctor_say(doctor, usable ? DOCTOR_OK : bad, "nic",
               usable ? "" : "give its network device an address; the NIC must speak RoCE v2",
               "%s: active, %s, %s%s, %u usable GIDs%s", nic->name, nic->layer,
               ctl_nic_speed(nic, speed), socket, nic->gid_count,
               nic->virtual_function ? ", virtual function" : "");
    if (nic->mtu_bytes == 0 || strcmp(nic->layer, "InfiniBand") == 0) {
        return;
    }
    bool small = nic->mtu_bytes < MTU_SMALL;
    doctor_say(doctor, small ? DOCTOR_WARN : DOCTOR_OK, "mtu",
               small ? "ip link set DEVICE mtu 9000, on switches and peers too" : "",
               "%s: %u bytes%s", nic->netdev, nic->mtu_bytes,
               small ? ": packets of 1024 bytes instead of 4096" : "");
}

/* With verbs: whether every rank has a port that works. */
static void plan_check(struct doctor *doctor, const struct ctl_nics *nics)
{
    const struct sl_nic_plan *plan = &nics->plan;
    if (plan->count == 0) {
        doctor_say(doctor, DOCTOR_FAIL, "nic_plan", "correct the settings nic and nic_by", "%s",
                   nics->why.text);
        return;
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        const char *name = plan->names[i];
        const struct sl_nic *nic = name[0] != '\0' ? sl_nics_find(&nics->nics, name) : NULL;
        char ranks[200];
        if (name[0] == '\0') {
            doctor_say(doctor, DOCTOR_OK, "nic_plan", "",
                       "the first device with a usable port serves all ranks (nic = auto: nearest "
                       "to each GPU)");
        } else if (nic == NULL || !sl_nic_is_usable(nic)) {
            doctor_say(doctor, DOCTOR_FAIL, "nic_plan", "correct the setting nic, or mend the NIC",
                       "%s: %s", name,
                       nic == NULL ? "there is no such RDMA port" : "it is not usable");
        } else {
            doctor_say(doctor, DOCTOR_OK, "nic_plan", "", "%s serves ranks %s", name,
                       ctl_nic_ranks(nics, (uint32_t)(nic - nics->nics.at), ranks, sizeof(ranks)));
        }
    }
}

static void nics_check(struct doctor *doctor, const struct ctl_nics *nics)
{
    bool wanted = nics->wanted;
    uint32_t usable = 0;
    for (uint32_t i = 0; i < nics->nics.count; i++) {
        usable += sl_nic_is_usable(&nics->nics.at[i]);
    }
    for (uint32_t i = 0; i < nics->nics.count; i++) { /* one that is down ends nothing by itself */
        port_check_nic(doctor, &nics->nics.at[i], wanted && usable == 0);
    }
    if (nics->nics.skipped > 0) {
        doctor_say(doctor, DOCTOR_WARN, "nic", "", "%u RDMA devices or ports have no usable name",
                   nics->nics.skipped);
    }
    if (nics->nics.count == 0) {
        doctor_say(doctor, wanted ? DOCTOR_FAIL : DOCTOR_OK, "nic",
                   wanted ? "load the NIC's driver (modprobe mlx5_ib, or rdma_rxe for a test), or "
                            "set fabric = tcp"
                          : "",
                   "no RDMA device%s", wanted ? ", and fabric = verbs" : "");
    } else if (wanted) {
        plan_check(doctor, nics);
    }
}

/* Of the node that runs. By tcp nothing else can be expected. */
static void device_memory_check(struct doctor *doctor, bool verbs)
{
    static const char *const mends[CTL_DEVICE_CAUSES] = {
        [CTL_DEVICE_FABRIC] = "rdma-core 34 or later",
        [CTL_DEVICE_SWAPPER] =
            "a driver and a GPU that export dmabufs; the transporter's log says more",
        [CTL_DEVICE_NIC] = "a NIC and a kernel that take dmabufs; the transporter's log says more",
    };
    struct ctl_devices devices;
    char bytes[32];
    ctl_devices_read(doctor->ctl, &devices);
    if (devices.dmabuf_bytes > 0) {
        doctor_say(doctor, DOCTOR_OK, "device_memory", "", "%s registered by dmabuf",
                   ctl_size_text(devices.dmabuf_bytes, bytes));
    }
    for (uint32_t i = 0; i < CTL_DEVICE_CAUSES; i++) {
        if (devices.out_bytes[i] > 0) {
            doctor_say(doctor, verbs ? DOCTOR_WARN : DOCTOR_OK, "device_memory",
                       verbs ? mends[i] : "", "%s by the node's memory: %s",
                       ctl_size_text(devices.out_bytes[i], bytes),
                       ctl_device_cause_text((enum ctl_device_cause)i));
        }
    }
}

void doctor_verbs(struct doctor *doctor)
{
    struct ctl_nics *nics = ctl_nics_look(doctor->config, doctor->sysfs, false);
    bool wanted = nics != NULL && nics->wanted;
    if (nics != NULL) {
        nics_check(doctor, nics);
    }
    free(nics);
    device_memory_check(doctor, wanted);
    if (!wanted) {
        return;
    }
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    doctor_say(doctor, library != NULL ? DOCTOR_OK : DOCTOR_FAIL, "libibverbs",
               library != NULL ? "" : "deploy/install (libibverbs-dev ibverbs-providers)", "%s",
               library != NULL ? "there" : dlerror());
    if (library != NULL) {
        (void)dlclose(library);
    }
}

/* ---- ports ---- */

/* IP or IP:PORT, as the fabric takes it. */
static bool address_parse(const char *text, struct sockaddr_storage *out, socklen_t *length,
                          uint16_t *port)
{
    char host[130];
    const char *port_text = NULL;
    *port = 0;
    return sl_address_split(text, SL_PORT_OPTIONAL, host, sizeof(host), &port_text) &&
           (port_text == NULL || sl_port_parse(port_text, port)) &&
           sl_address_ip(host, *port, out, length);
}

/* cluster_listen may also be at an interface's name, or at *. */
static bool interface_parse(const char *text, struct sockaddr_storage *out, socklen_t *length,
                            uint16_t *port)
{
    char name[IF_NAMESIZE];
    struct ifaddrs *all = NULL;
    bool found = false;
    if (!sl_address_parse(text, name, sizeof(name), port)) {
        return false;
    }
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(*port)};
    found = strcmp(name, "*") == 0;
    if (!found && getifaddrs(&all) != 0) {
        return false;
    }
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
            strcmp(at->ifa_name, name) == 0) {
            memcpy(&v4.sin_addr,
                   &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr,
                   sizeof(v4.sin_addr));
            found = true;
        }
    }
    freeifaddrs(all);
    memcpy(out, &v4, sizeof(v4));
    *length = sizeof(v4);
    return found;
}

/* Errors: errno of bind or listen; 0: it is free. */
static int port_try(const struct sockaddr_storage *address, socklen_t length)
{
    const int on = 1;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int os_code = fd < 0 ? errno : 0;
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (const struct sockaddr *)address, length) != 0 || listen(fd, 1) != 0) {
            os_code = errno;
        }
        (void)close(fd);
    }
    return os_code;
}

struct listen_place {
    const char *name; /* of its setting */
    bool control;     /* cluster_listen, else of fabric_address */
    char text[160];
};

/* The place of that number at which a transporter listens; false: there are no more. */
static bool listen_place(const struct sl_config *config, uint32_t number, struct listen_place *out)
{
    bool tcp = strcmp(sl_config_text(config, SL_SET_fabric), "tcp") == 0;
    const char *list = tcp ? sl_config_text(config, SL_SET_fabric_address) : "";
    const char *listen = sl_config_text(config, SL_SET_cluster_listen);
    *out = (struct listen_place){.name = sl_setting_name(SL_SET_fabric_address)};
    for (bool more = list[0] != '\0'; more; number--) {
        size_t length = strcspn(list, ",");
        const char *at = list + SL_MIN(strspn(list, " "), length);
        int shown = (int)(list + length - at);
        while (shown > 0 && at[shown - 1] == ' ') {
            shown--;
        }
        if (number == 0) {
            (void)snprintf(out->text, sizeof(out->text), "%.*s", shown, at);
            return true;
        }
        more = list[length] == ','; /* also in front of an empty one */
        list += length + (more ? 1 : 0);
    }
    out->name = sl_setting_name(SL_SET_cluster_listen);
    out->control = true;
    (void)snprintf(out->text, sizeof(out->text), "%s", listen);
    return number == 0 && listen[0] != '\0';
}

/* Whether this node could listen there; *mend: what to do. running: it may have the port already; else one in use is tried
 * for a second: what a killed process had in io_uring the kernel closes late. Errors: SL_ERR_CONFIG (no address of this machine), SL_ERR_EXISTS (in use), those of bind. */
static sl_err listen_check(const struct listen_place *place, bool running, const char **mend,
                           struct sl_error *why)
{
    struct sockaddr_storage address = {0};
    socklen_t length = 0;
    uint16_t port = 0;
    bool good = address_parse(place->text, &address, &length, &port) ||
                (place->control && interface_parse(place->text, &address, &length, &port));
    bool none = !good || (place->control && port == 0);
    int os_code = none ? EADDRNOTAVAIL : port_try(&address, length);
    for (int n = 0; os_code == EADDRINUSE && !running && n < 50; n++) { /* a killed io_uring's */
        os_code = poll(NULL, 0, 20) == 0 ? port_try(&address, length) : os_code;
    }
    *mend = os_code == EADDRINUSE ? "choose another port, or end who has it (ss -ltnp)"
            : os_code == EACCES   ? "ports below 1024 are not for everybody: choose another"
            : place->control      ? "cluster_listen = IP:PORT, INTERFACE:PORT or *:PORT"
                                  : "fabric_address = IP or IP:PORT, or several by commas";
    if (os_code == 0 || (os_code == EADDRINUSE && running)) {
        return SL_OK;
    }
    return os_code == EADDRNOTAVAIL
               ? sl_fail(why, SL_ERR_CONFIG, "%s: '%s' is no address of this machine (ip addr)",
                         place->name, place->text)
               : sl_fail_os(why, os_code, "%s: '%s'", place->name, place->text);
}

sl_err ctl_listen_check(const struct sl_config *config, bool running, struct sl_error *why)
{
    struct listen_place place;
    const char *mend = NULL;
    for (uint32_t i = 0; listen_place(config, i, &place); i++) {
        sl_err err = listen_check(&place, running, &mend, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* What the directory tells others of where this node is. */
static void told_check(struct doctor *doctor)
{
    bool any = false;
    const char *listen = sl_config_text(doctor->config, SL_SET_cluster_listen);
    const char *told = sl_config_text(doctor->config, SL_SET_cluster_address);
    const char *address = told[0] != '\0' ? told : listen;
    if (sl_cluster_is_guided(doctor->config) && (!sl_cluster_address(address, &any) || any)) {
        doctor_say(doctor, DOCTOR_FAIL, "ports",
                   "cluster_address = IP:PORT at which other nodes reach this one",
                   "%s: '%s' is no address that the directory can tell others",
                   told[0] != '\0' ? "cluster_address" : "cluster_listen", address);
    }
}

void doctor_ports(struct doctor *doctor)
{
    struct listen_place place;
    struct sl_error why = {0};
    const char *mend = NULL;
    uint32_t count = 0;
    for (; listen_place(doctor->config, count, &place); count++) {
        if (listen_check(&place, doctor->running, &mend, &why) != SL_OK) {
            doctor_say(doctor, DOCTOR_FAIL, "ports", mend, "%s", why.text);
        } else {
            doctor_say(doctor, DOCTOR_OK, "ports", "", "%s %s: %s", place.name, place.text,
                       doctor->running ? "this node's" : "free");
        }
        if (place.control) {
            told_check(doctor);
        }
    }
    if (count == 0) {
        doctor_say(doctor, DOCTOR_OK, "ports", "", "nothing listens on a network");
    }
}

/* ---- /metrics ---- */

void doctor_address(struct doctor *doctor, const struct doctor_listener *listener, const char *text)
{
    struct sockaddr_storage address = {0};
    socklen_t length = 0;
    char host[256];
    uint16_t port = 0;
    bool parsed = sl_address_parse(text, host, sizeof(host), &port) &&
                  sl_address_ip(host, port, &address, &length);
    int os_code = parsed ? port_try(&address, length) : 0; /* a name is left to who listens */
    if (os_code != 0) {
        doctor_say(doctor, DOCTOR_FAIL, listener->check,
                   os_code == EADDRINUSE
                       ? "choose another port, or end who has it (ss -ltnp); the node runs without"
                       : "IP:PORT of this machine, or local; the node runs without",
                   "%s %s: %s", listener->setting, text, strerror(os_code));
        return;
    }
    bool inside = (address.ss_family == AF_INET && strncmp(host, "127.", 4) == 0) ||
                  (address.ss_family == AF_INET6 && strcmp(host, "::1") == 0) ||
                  strcmp(host, "localhost") == 0;
    bool open = !inside && !listener->guarded;
    doctor_say(doctor, open ? DOCTOR_WARN : DOCTOR_OK, listener->check,
               open ? listener->mend_open : "", "%s %s: free%s%s", listener->setting, text,
               open ? "; whoever reaches it reads " : "", open ? listener->reads : "");
}

void doctor_metrics(struct doctor *doctor)
{
    const char *text = sl_config_text(doctor->config, SL_SET_metrics_listen);
    const char *token = getenv("SLUICE_METRICS_TOKEN");
    const char *file = getenv("SLUICE_METRICS_TOKEN_FILE");
    const struct doctor_listener listener = {
        .check = "metrics",
        .setting = "metrics_listen",
        .mend_open = "SLUICE_METRICS_TOKEN_FILE, a firewall, or metrics_listen = local",
        .reads = "load and hit rates (no keys)",
        .guarded = (token != NULL && token[0] != '\0') || (file != NULL && file[0] != '\0')};
    struct metrics_at at;
    if (strcmp(text, "off") == 0) {
        doctor_say(doctor, DOCTOR_OK, "metrics", "", "off");
    } else if (metrics_at_read(doctor->paths.runtime_dir, "metrics", &at)) {
        doctor_say(doctor, DOCTOR_OK, "metrics", "", "/metrics at %s", at.address);
    } else if (strcmp(text, "local") != 0) {
        doctor_address(doctor, &listener, text);
    } else {
        doctor_say(doctor, doctor->running ? DOCTOR_WARN : DOCTOR_OK, "metrics",
                   doctor->running ? "see metrics.out in the log directory" : "",
                   doctor->running ? "/metrics is not served" : "a local socket");
    }
}

/* ---- the directory ---- */

struct probe {
    bool up, failed;
    char why[SL_ERROR_TEXT_BYTES];
};

static void probe_link(void *context, bool up, const struct sl_error *why)
{
    struct probe *probe = context;
    probe->up = up;
    probe->failed = !up;
    if (!up) {
        (void)snprintf(probe->why, sizeof(probe->why), "%s", why->text);
    }
}

static void probe_found(void *context, uint64_t cookie, sl_err code,
                        const struct sl_directory_found *found, uint32_t count)
{
    (void)context, (void)cookie, (void)code, (void)found, (void)count; /* nothing is looked up */
}

void doctor_directory(struct doctor *doctor)
{
    static const char mend[] =
        "start redis-server there, and check directory_url, directory_password_file and firewalls";
    char password[SL_DIRECTORY_PASSWORD_BYTES];
    struct sl_directory_options options;
    struct sl_directory *directory = NULL;
    struct sl_error why = {0};
    struct probe probe = {0};
    sl_err err = sl_directory_options_from(doctor->config, &options, password, &why);
    if (err == SL_OK && options.kind == SL_DIRECTORY_EMBEDDED) {
        doctor_say(doctor, DOCTOR_OK, "directory", "", "embedded: this node alone");
        return;
    }
    options.events =
        (struct sl_directory_events){.context = &probe, .found = probe_found, .link = probe_link};
    if (err == SL_OK) {
        err = sl_directory_open(&options, &directory, &why);
    }
    explicit_bzero(password, sizeof(password));
    if (err != SL_OK) {
        doctor_say(doctor, DOCTOR_FAIL, "directory", "correct the setting", "%s", why.text);
        return;
    }
    while (!probe.up && !probe.failed) { /* the first attempt ends by directory_timeout */
        sl_directory_step(directory, sl_clock_monotonic_ns());
        struct pollfd fd = {.fd = sl_directory_fd(directory), .events = POLLIN};
        (void)poll(&fd, 1, 5);
    }
    doctor_say(doctor, probe.up ? DOCTOR_OK : DOCTOR_FAIL, "directory", probe.up ? "" : mend, "%s",
               probe.up ? "redis answers" : probe.why);
    sl_directory_close(&directory);
}
