"""`/api/v1/feeds`: the Pub/Sub topics whose messages become events."""

from penstock.client.types import FeedBody, FeedList, FeedView
from penstock.domain.errors import FailedPrecondition
from penstock.events.accept import TopicFeeds
from penstock.events.fields import SMALL_BODY_BYTES, full_topic_name
from penstock.events.store import JobRepository, TopicFeed
from penstock.http.api import Call, NoBody, NoQuery, route

PATH = "/api/v1/feeds"
_ONE = f"{PATH}/{{topic}}"


class FeedRoutes:
    """The routes of feeds; an API without a Pub/Sub server has none."""

    def __init__(self, repository: JobRepository, feeds: TopicFeeds | None) -> None:
        self._repository = repository
        self._feeds = feeds

    @route("GET", PATH, summary="List the topics that feed events.")
    async def _list(self, _: Call[NoQuery, NoBody]) -> FeedList:
        return FeedList([_view(feed) for feed in await self._repository.list_feeds()])

    @route(
        "PUT",
        _ONE,
        summary="Let the messages of a topic become events from now on; the topic is created if it does not exist.",
        max_body_bytes=SMALL_BODY_BYTES,
    )
    async def _put(self, call: Call[NoQuery, FeedBody]) -> FeedView:
        topic = full_topic_name(call.path["topic"])
        feed = TopicFeed(
            topic=topic,
            type=call.body.type or topic.rpartition("/")[2],
            type_attribute=call.body.type_attribute or "",
            tenant=call.body.tenant or "",
        )
        await self._running().start(feed)
        return _view(feed)

    @route("DELETE", _ONE, summary="Stop feeding events; messages that have not become events yet become none.")
    async def _delete(self, call: Call[NoQuery, NoBody]) -> FeedView:
        topic = full_topic_name(call.path["topic"])
        known = {feed.topic: feed for feed in await self._repository.list_feeds()}
        await self._running().stop(topic)
        return _view(known[topic])

    def _running(self) -> TopicFeeds:
        if self._feeds is None:
            raise FailedPrecondition(
                "this API knows no Pub/Sub server: start it with --topics HOST:PORT or set jobs.topics; "
                "`penstock up` has one"
            )
        return self._feeds


def _view(feed: TopicFeed) -> FeedView:
    return FeedView(feed.topic, feed.type, feed.type_attribute or None, feed.tenant)
