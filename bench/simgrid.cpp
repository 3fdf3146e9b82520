// A solver's exchange in step, as SimGrid times it: peers with a block each, which send every face that they share, wait for as many, and compute.
// What `polyrail solve --simulate` says of the same is held against it (bench/run simulated).
//
//   simgrid X Y Z LENGTH UNIT ITERATIONS RATE LATENCY OVERHEAD SITES FAR_RATE FAR_LATENCY SLOW_FIRST SLOW_COUNT SLOW_SPEED
//
// X * Y * Z blocks of a cube with edges of LENGTH points, each of which takes UNIT seconds. RATE (bytes per second) is each card's, LATENCY (seconds) from one host
// to another, OVERHEAD (seconds) each message's at either side. Peers of a site have consecutive numbers; from each site to each other leads one line. Prints seconds.
#include <simgrid/s4u.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static int pieces[3];
static double length, unit, overhead;
static long iterations;

// What stands before a block's own bytes, on the wire and in the message.
static constexpr double HEAD = 64 + 24;
static constexpr double SPEED = 1e9;

static std::string box(int from, int to) {
    return std::to_string(from) + ">" + std::to_string(to);
}

static void peer(int me) {
    const int place[3] = {me % pieces[0], me / pieces[0] % pieces[1], me / (pieces[0] * pieces[1])};
    const int stride[3] = {1, pieces[0], pieces[0] * pieces[1]};
    const double edge[3] = {length / pieces[0], length / pieces[1], length / pieces[2]};
    const double points = edge[0] * edge[1] * edge[2];
    std::vector<std::pair<int, double>> beyond;
    for (int axis = 0; axis < 3; axis++)
        for (int side = -1; side <= 1; side += 2)
            if (place[axis] + side >= 0 && place[axis] + side < pieces[axis])
                beyond.emplace_back(me + side * stride[axis], HEAD + 8 * points / edge[axis]);
    static int nothing;
    static int *into;
    std::vector<sg::CommPtr> comes(beyond.size());
    // it travels from when both have asked for it: receives are there before what they are for, which a neighbour may send while this one computes
    auto post = [&] {
        for (size_t at = 0; at < beyond.size(); at++) comes[at] = sg::Mailbox::by_name(box(beyond[at].first, me))->get_async<int>(&into);
    };
    post();
    for (long i = 0; i < iterations; i++) {
        // nobody waits until it has been sent
        for (const auto &[to, bytes] : beyond) sg::Mailbox::by_name(box(me, to))->put_init(&nothing, static_cast<uint64_t>(bytes))->detach();
        // what messages take of the processor passes while others travel
        for (size_t at = 0; at < beyond.size(); at++) sg::this_actor::execute(SPEED * overhead);
        for (auto &one : comes) {
            one->wait();
            sg::this_actor::execute(SPEED * overhead);
        }
        if (i + 1 < iterations) post();
        sg::this_actor::execute(SPEED * points * unit);
    }
}

int main(int argc, char **argv) {
    sg::Engine engine(&argc, argv);
    if (argc != 16) {
        fprintf(stderr, "simgrid: 15 numbers are wanted\n");
        return 2;
    }
    auto number = [&](int at) { return atof(argv[at]); };
    for (int axis = 0; axis < 3; axis++) pieces[axis] = atoi(argv[1 + axis]);
    length = number(4), unit = number(5), iterations = atol(argv[6]);
    const double rate = number(7), latency = number(8);
    overhead = number(9);
    const int sites = atoi(argv[10]), peers = pieces[0] * pieces[1] * pieces[2];
    const double far_rate = number(11), far_latency = number(12);
    const int slow_first = atoi(argv[13]), slow_end = slow_first + atoi(argv[14]);
    // a wire's rate and latency are what is said, not what TCP made of them in 2009
    for (const char *word : {"network/latency-factor:1", "network/bandwidth-factor:1", "network/weight-S:0", "network/TCP-gamma:1e15"})
        sg::Engine::set_config(word);

    auto *world = sg::create_full_zone("world");
    std::vector<sg::NetZone *> zones;
    std::vector<simgrid::kernel::routing::NetPoint *> gates;
    for (int site = 0; site < sites; site++) {
        auto *zone = sg::create_star_zone("site" + std::to_string(site));
        zone->set_parent(world);
        gates.push_back(zone->create_router("gate" + std::to_string(site)));
        zones.push_back(zone);
    }
    std::vector<sg::Host *> hosts;
    for (int me = 0; me < peers; me++) {
        auto *zone = zones[static_cast<long>(me) * sites / peers];
        const double speed = me >= slow_first && me < slow_end ? number(15) : 1;
        auto *host = zone->create_host("host" + std::to_string(me), SPEED * speed);
        auto *card = zone->create_split_duplex_link("card" + std::to_string(me), rate);
        card->set_latency(latency / 2)->seal();
        zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {{card, sg::LinkInRoute::Direction::UP}}, true);
        hosts.push_back(host);
    }
    for (auto *zone : zones) zone->seal();
    for (int one = 0; one < sites; one++)
        for (int other = one + 1; other < sites; other++) {
            auto *line = world->create_split_duplex_link("line" + std::to_string(one) + "-" + std::to_string(other), far_rate);
            line->set_latency(far_latency)->seal();
            world->add_route(zones[one]->get_netpoint(), zones[other]->get_netpoint(), gates[one], gates[other], {{line, sg::LinkInRoute::Direction::UP}}, true);
        }
    world->seal();
    for (int me = 0; me < peers; me++) sg::Actor::create("peer" + std::to_string(me), hosts[me], peer, me);
    engine.run();
    printf("%.9g\n", sg::Engine::get_clock());
}
